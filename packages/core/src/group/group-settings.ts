import { InvariantViolation } from '../errors/invariant-violation.js';

/** How plans of concurrent executions are written together. */
export interface GroupSettings {
  /** How many plans one group writes at most. Default 128. */
  readonly plansMax: number;
  /** How many plans of one shard wait at most; further ones are refused as `shard-unavailable`. Default 10,000. */
  readonly queueMax: number;
  /** How many models and events a plan may hold to be written in a group; larger ones commit alone. Default 32. */
  readonly planSizeMax: number;
  /** How long the JSON of a plan may be in all, in characters; longer ones commit alone. Default 65,536. */
  readonly planCharactersMax: number;
  /** How many models one combined read asks for at most. Default 128. */
  readonly readsMax: number;
}

export const defaultGroupSettings: GroupSettings = {
  plansMax: 128,
  queueMax: 10_000,
  planSizeMax: 32,
  planCharactersMax: 65_536,
  readsMax: 128,
};

/** @throws InvariantViolation `invariant-violation` when no plan and no read could ever be in a group */
export function checkGroupSettings({ plansMax, readsMax }: GroupSettings): void {
  for (const [name, value] of Object.entries({ plansMax, readsMax })) {
    if (!(value >= 1)) throw new InvariantViolation(`groupCommit.${name} is ${value}: set it to 1 or more`);
  }
}

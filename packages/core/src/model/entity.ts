import { InvalidModelException } from '../errors/value-exceptions.js';
import type { Id } from '../id/id.js';
import type { OwnFields } from './fields.js';

/** Any entity or model, where its type does not matter. */
export type AnyEntity = Entity<unknown, Id<unknown>, string>;

/**
 * An immutable thing with an identity, a state and a version, but no events of its own.
 *
 * The constructor takes one object with all fields ({@link NewEntity}) and passes it to `super`: the next
 * version is built by calling it again. The class names itself as first type argument.
 */
export abstract class Entity<Self, I extends Id<Self>, State extends string> {
  readonly id: I;
  /** What the entity's life cycle has reached; rows of state `DELETED` are never read. */
  readonly state: State;
  /** 0 until it is stored, 1 after the first commit, one more after each further one. */
  readonly version: number;

  /** @throws InvalidModelException `invalid-model` when the version does not count anything */
  constructor(fields: { readonly id: I; readonly state: State; readonly version?: number }) {
    this.id = fields.id;
    this.state = fields.state;
    this.version = checkedVersion(fields.version ?? 0);
  }

  /** The same entity with some fields changed; this one stays as it is. */
  protected copy(changes: Partial<OwnFields<Self>> & { readonly state?: State }): Self {
    return rebuild(this, changes) as unknown as Self;
  }
}

function checkedVersion(version: number): number {
  if (Number.isSafeInteger(version) && version >= 0) return version;
  throw new InvalidModelException(`version must be a whole number from 0 on, not ${String(version)}`);
}

/** Builds an entity of the same class from its fields and the changed ones, through its constructor. */
export function rebuild<E extends object>(entity: E, changes: object): E {
  const constructor = entity.constructor as new (fields: object) => E;
  return new constructor({ ...entity, ...changes });
}

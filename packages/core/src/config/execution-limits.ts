import { type RangesOf, fromOne } from './settings.js';

/** The named maxima of one execution. */
export interface ExecutionLimits {
  /** How many models one plan may stage. Default 1,000. */
  readonly changesMax: number;
  /** How many events one plan may hold. Default 10,000. */
  readonly eventsMax: number;
  /** How long one event's payload, the action's params, or its headers may be as JSON, in characters. Default 262,144. */
  readonly payloadCharactersMax: number;
}

export const defaultExecutionLimits: ExecutionLimits = {
  changesMax: 1_000,
  eventsMax: 10_000,
  payloadCharactersMax: 262_144,
};

export const executionLimitRanges: RangesOf<ExecutionLimits> = {
  changesMax: fromOne,
  eventsMax: fromOne,
  payloadCharactersMax: fromOne,
};

import type { Page } from '../persistence/page.js';
import type { DeliverableEvent } from './deliverable-event.js';

/** Which parked events an operator means; every given field must match. */
export interface ParkedFilter {
  readonly handler?: string;
  readonly eventId?: string;
  readonly eventType?: string;
  readonly modelId?: string;
  /** True: dead letters only; false: only those that still wait. Default: both. */
  readonly dead?: boolean;
}

/** A parked event, for operators. */
export interface ParkedRow {
  readonly handler: string;
  readonly event: DeliverableEvent;
  readonly attempts: number;
  /** How many calls did not count as attempts, because storage or another shard could not serve. */
  readonly uncounted: number;
  readonly error: string | undefined;
  readonly dead: boolean;
  readonly parkedDate: Date;
  /** When the next attempt may be made; `undefined` for a dead letter and for one that waits for its turn. */
  readonly nextAttemptDate: Date | undefined;
}

/** What one step of many has done. */
export interface DeadLettersStep {
  /** How many dead letters were changed. */
  readonly count: number;
  /** Pass it as `after` to go on; `undefined` after the last step. */
  readonly next: string | undefined;
}

/** Which dead letters one step is about: a bounded number of those behind the step before. */
export interface StepPlace {
  readonly limit: number;
  readonly after?: string;
}

/** Port: the parked events of one database as operators see them, and what they do with dead letters. */
export interface DeadLetters {
  /** Parked events, the oldest first. A page has less than its limit where its events are large; it has a `next` then. */
  find(
    filter: ParkedFilter,
    page: { readonly limit: number; readonly after?: string },
  ): Promise<Page<ParkedRow>>;
  /** Gives dead letters their attempts back, to be tried when it is their turn; the oldest first, step by step. */
  replay(filter: ParkedFilter, step: StepPlace): Promise<DeadLettersStep>;
  /**
   * Removes dead letters, or with `dead: false` events that still wait, so that their models' later events go on; the oldest first,
   * step by step.
   */
  skip(filter: ParkedFilter, step: StepPlace): Promise<DeadLettersStep>;
}

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
  readonly error: string | undefined;
  readonly dead: boolean;
  readonly parkedDate: Date;
  /** When the next attempt may be made; `undefined` for a dead letter and for one that waits for its turn. */
  readonly nextAttemptDate: Date | undefined;
}

/** Port: the parked events of one database as operators see them, and what they do with dead letters. */
export interface DeadLetters {
  /** Parked events, the oldest first. */
  find(
    filter: ParkedFilter,
    page: { readonly limit: number; readonly after?: string },
  ): Promise<Page<ParkedRow>>;
  /** Gives dead letters their attempts back, to be tried when it is their turn; says how many. */
  replay(filter: ParkedFilter): Promise<number>;
  /** Removes dead letters, so that their models' later events go on; says how many. */
  skip(filter: ParkedFilter): Promise<number>;
}

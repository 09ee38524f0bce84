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

/** How far a handler is behind. */
export interface HandlerLag {
  readonly handler: string;
  readonly paused: boolean;
  /** Committed events that it has neither handled nor parked. */
  readonly pendingCount: number;
  /** The age of the oldest of them, in milliseconds; 0 when there is none. */
  readonly oldestPendingMs: number;
  readonly parkedCount: number;
  readonly deadCount: number;
}

/** Port: what operators ask of one database, and tell it. */
export interface DeadLetters {
  /** Parked events, the oldest first. */
  findParked(
    filter: ParkedFilter,
    page: { readonly limit: number; readonly after?: string },
  ): Promise<Page<ParkedRow>>;
  /** Gives dead letters their attempts back, to be tried when it is their turn; says how many. */
  replay(filter: ParkedFilter): Promise<number>;
  /** Removes dead letters, so that their models' later events go on; says how many. */
  skip(filter: ParkedFilter): Promise<number>;
  /** Stops a handler, or lets it go on; takes effect within the polling interval. */
  setPaused(handler: string, paused: boolean): Promise<void>;
  /** How far each handler is behind. */
  lag(): Promise<readonly HandlerLag[]>;
  /** The event and where it stands, or `undefined` when the log does not hold it. */
  findEvent(eventId: string): Promise<DeliverableEvent | undefined>;
  /** Whether a handler's cursor has passed the event. */
  hasPassed(handler: string, event: DeliverableEvent): Promise<boolean>;
}

import type { DeliverableEvent } from './deliverable-event.js';

/** A place in the log of a database: what lies before it is done or parked. Opaque; equal places are equal texts. */
export type Cursor = string;

/** Where a new handler starts: at the first event there is, at the next one, or at those created since a time. */
export type StartFrom = 'beginning' | 'now' | { readonly time: Date };

/** A handler, as the database knows it. */
export interface HandlerRegistration {
  /** Durable and unique. */
  readonly name: string;
  /** Names that it had before. */
  readonly aliases: readonly string[];
  readonly startFrom: StartFrom;
}

/** Where a handler stands in one slot. */
export interface HandlerCursor {
  readonly handler: string;
  readonly slot: number;
  readonly cursor: Cursor;
  /** An operator has stopped it; its cursor stays. */
  readonly paused: boolean;
}

/** A handler's new place in one slot, to be saved under the lease of that slot. */
export interface CursorMove {
  readonly handler: string;
  readonly slot: number;
  readonly token: string;
  readonly cursor: Cursor;
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

/** Port: the handlers that one database knows, and where each stands in its slots. */
export interface HandlerCursors {
  /**
   * Makes cursors for handlers that are new here, at the start that they ask for; a handler that lists an old name among
   * its aliases takes over what that one had. Calling it again changes nothing.
   */
  register(handlers: readonly HandlerRegistration[]): Promise<void>;
  /** The cursors of all registered handlers in these slots. */
  load(slots: readonly number[]): Promise<readonly HandlerCursor[]>;
  /** Saves cursors; gives back the slots whose lease was lost. */
  save(moves: readonly CursorMove[]): Promise<readonly number[]>;

  /** Stops a handler, or lets it go on, for operators; takes effect when its cursors are loaded the next time. */
  setPaused(handler: string, paused: boolean): Promise<void>;
  /** Whether a handler's cursor has passed the event, for operators. */
  hasPassed(handler: string, event: DeliverableEvent): Promise<boolean>;
  /** How far each handler is behind, for operators. */
  lag(): Promise<readonly HandlerLag[]>;
}

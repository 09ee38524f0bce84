/**
 * A position in the log of a database: everything before it is done or waits in a blocked model. Opaque; equal positions are equal texts.
 *
 * It is valid only in the history of the database in which it was read. After a crash, after a failover or in a copy, reading
 * from it and saving it are refused, and cursors must be loaded again.
 */
export type Cursor = string;

/**
 * Where a new handler starts: at the first event, at the next one, or at those created since a time, whenever their transactions
 * commit; some that were created earlier may be included.
 */
export type StartFrom = 'beginning' | 'now' | { readonly time: Date };

/** A handler, as a process declares it. */
export interface HandlerRegistration {
  /** Durable and unique. */
  readonly name: string;
  /** Former names, and names in other versions that run at the same time. */
  readonly aliases: readonly string[];
  readonly startFrom: StartFrom;
}

/** A handler, as a database knows it. */
export interface KnownHandler {
  /** The permanent id. */
  readonly handler: string;
  /** All names and aliases under which it was registered. */
  readonly names: readonly string[];
  /** Whether an operator has paused it; its cursors stay. */
  readonly paused: boolean;
}

/** The position of a handler in one slot. */
export interface HandlerCursor {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  readonly cursor: Cursor;
  /** Whether an operator has paused it; its cursor stays. */
  readonly paused: boolean;
}

/** A handler's new position in one slot, to be saved under its lease there. */
export interface CursorMove {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  /** The token of the lease. */
  readonly token: string;
  readonly cursor: Cursor;
}

/** How far a handler is behind. */
export interface HandlerLag {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly paused: boolean;
  /**
   * Committed events that its cursors have not passed, counted among the first 100,000 after the one that is furthest behind.
   */
  readonly pendingCount: number;
  /** The age of the oldest of them, in milliseconds; 0 when there is none. */
  readonly oldestPendingMs: number;
  /**
   * Events that its cursors have passed and that wait in blocked models, the heads included; counted up to 10,000, or exactly where
   * that costs nothing.
   */
  readonly blockedCount: number;
  /** Dead letters, counted up to 10,000, or exactly where that costs nothing. */
  readonly deadCount: number;
}

/** Port: the handlers that one database knows, and their position in each slot. */
export interface HandlerCursors {
  /**
   * Finds a handler by any of its names or aliases, and creates its cursors, at the start that it asks for, if it is new here. From
   * then on all its names identify the same handler, whose permanent id is its first name: old and new code side by side share what
   * is stored under it. Calling it again changes nothing.
   *
   * @returns the permanent id
   * @throws HandlerNamesError `handler-names` when its names belong to several handlers; then nothing is registered
   */
  register(handler: HandlerRegistration): Promise<string>;
  /** The permanent id of the handler that has or had a name; `undefined` when there is none. */
  find(name: string): Promise<string | undefined>;
  /** All registered handlers. */
  known(): Promise<readonly KnownHandler[]>;
  /** The cursors of all registered handlers in these slots. */
  load(slots: readonly number[]): Promise<readonly HandlerCursor[]>;
  /**
   * Saves cursors; returns the tokens of leases that are lost. No cursor moves back: a save that the caller gave up waiting for
   * may arrive after a later one.
   */
  save(moves: readonly CursorMove[]): Promise<readonly string[]>;

  /** Pauses or resumes a handler, for operators; takes effect when its cursors are next loaded. */
  setPaused(handler: string, paused: boolean): Promise<void>;
  /**
   * Removes a handler that no process has any more, for operators: its cursors, names and blocked models.
   *
   * @param handler the permanent id
   * @param options.discardBlocked whether waiting events and dead letters are removed as well
   * @throws HandlerInUseError `handler-in-use` while a process has it; while a process that had it is late, but by less than the
   * duration of its lease; or while events wait for it
   */
  retire(handler: string, options: { readonly discardBlocked: boolean }): Promise<void>;
  /** How far each handler is behind, for operators. */
  lag(): Promise<readonly HandlerLag[]>;
}

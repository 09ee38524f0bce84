import { HandlerNamesError } from '../errors/handler-errors.js';
import type { DeliverableEvent } from './event-log.js';

/**
 * A place in the log of a database: what lies before it is done or blocked. Opaque; equal places are equal texts.
 *
 * It is valid only in the history of the database in which it was read: reading from it and saving it are refused after a
 * crash, a failover or in a copy, where cursors must be loaded again.
 */
export type Cursor = string;

/**
 * Where a new handler starts: at the first event there is, at the next one, or at those created since a time, whenever their
 * transactions commit; some that were created earlier may come with them.
 */
export type StartFrom = 'beginning' | 'now' | { readonly time: Date };

/** A handler, as a process declares it. */
export interface HandlerRegistration {
  /** Durable and unique. */
  readonly name: string;
  /** Names that it had before, or has in other versions that run beside this one. */
  readonly aliases: readonly string[];
  readonly startFrom: StartFrom;
}

/** A handler, as a database knows it. */
export interface KnownHandler {
  /** The permanent id. */
  readonly handler: string;
  /** All names and aliases under which it was registered. */
  readonly names: readonly string[];
  /** An operator has stopped it; its cursors stay. */
  readonly paused: boolean;
}

/** Where a handler stands in one slot. */
export interface HandlerCursor {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  readonly cursor: Cursor;
  /** An operator has stopped it; its cursor stays. */
  readonly paused: boolean;
}

/** A handler's new place in one slot, to be saved under its lease there. */
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
  /** Committed events that it has neither handled nor blocked; counted among the 100,000 that follow its furthest cursor. */
  readonly pendingCount: number;
  /** The age of the oldest of them, in milliseconds; 0 when there is none. */
  readonly oldestPendingMs: number;
  readonly blockedCount: number;
  readonly deadCount: number;
}

/** Port: the handlers that one database knows, and where each stands in its slots. */
export interface HandlerCursors {
  /**
   * Finds handlers by any of their names or aliases, and makes cursors for those that are new here, at the start that
   * they ask for. From then on all their names identify the same handler, whose permanent id is its first name: old and
   * new code side by side share what is kept under it. Calling it again changes nothing.
   *
   * @returns the permanent ids, in the order of the handlers
   * @throws HandlerNamesError `handler-names` when the names of one handler belong to several, or those of two to one;
   * nothing is registered then
   */
  register(handlers: readonly HandlerRegistration[]): Promise<readonly string[]>;
  /** The permanent id of the handler that has or had a name; `undefined` when none did. */
  find(name: string): Promise<string | undefined>;
  /** All registered handlers. */
  known(): Promise<readonly KnownHandler[]>;
  /** The cursors of all registered handlers in these slots. */
  load(slots: readonly number[]): Promise<readonly HandlerCursor[]>;
  /**
   * Saves cursors; gives back the tokens of leases that are lost. None is moved back: a save whose answer was given up may come after a
   * later one.
   */
  save(moves: readonly CursorMove[]): Promise<readonly string[]>;

  /** Stops a handler, or lets it go on, for operators; takes effect when its cursors are loaded the next time. */
  setPaused(handler: string, paused: boolean): Promise<void>;
  /**
   * Forgets a handler that no process has any more, for operators: its cursors, names and blocked events.
   *
   * @param handler the permanent id
   * @param options.discardBlocked whether events that wait for it, and dead letters, are forgotten as well
   * @throws HandlerInUseError `handler-in-use` while a process has it, or had it and is late for less than the time of its
   * lease, or while events wait for it
   */
  retire(handler: string, options: { readonly discardBlocked: boolean }): Promise<void>;
  /** Whether a handler's cursor has passed the event, for operators. */
  hasPassed(handler: string, event: DeliverableEvent): Promise<boolean>;
  /** How far each handler is behind, for operators. */
  lag(): Promise<readonly HandlerLag[]>;
}

/**
 * Refuses handlers of which two turned out to be the same, for adapters: a handler with a name that another one had would
 * take over what is kept under it, and no events would be delivered to the other one.
 *
 * @param ids the permanent ids, in the order of the handlers
 * @throws HandlerNamesError `handler-names` when two are the same
 */
export function assertDistinctHandlers(
  handlers: readonly HandlerRegistration[],
  ids: readonly string[],
): void {
  const owners = new Map<string, string>();
  for (const [index, { name }] of handlers.entries()) {
    const id = ids[index] ?? name;
    const other = owners.get(id);
    if (other !== undefined) throw new HandlerNamesError(name, [id], other);
    owners.set(id, name);
  }
}

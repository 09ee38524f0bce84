import { ShardIdentifier } from '../id/shard-identifier.js';
import type { Page } from './repository.js';

/** The full name of a request: the same key of another principal is a different key. */
export interface KeyScope {
  readonly namespace: string;
  readonly principal: string;
  /** Chosen by the caller: 1 to 255 characters. */
  readonly key: string;
}

/** What a change set stores with its effect, so that a repeat of the request gets the same answer. */
export interface KeyRecord extends KeyScope {
  /** Identifies the request: SHA-256 of the action's name and params in canonical form, in hexadecimal. */
  readonly fingerprint: string;
  /** The action's result as JSON; `undefined` when the action has none. */
  readonly result: string | undefined;
  /** How long the key is kept, measured by the database's clock. */
  readonly lifetimeMs: number;
  /** The event for which a handler executed the action, as one text; `undefined` for a client's key. */
  readonly source?: string | undefined;
}

/** A key of a handler, with the event that it belongs to. */
export interface HandlerKey extends KeyScope {
  readonly source: string;
}

/** A request that was committed under a key. */
export interface StoredKey {
  readonly fingerprint: string;
  readonly actionId: string;
  readonly actionName: string;
  /** The result as JSON; `undefined` when the action had none. */
  readonly result: string | undefined;
}

/** Port: the idempotency keys in the database of one shard, written by {@link TransactionManager.persist}. */
export interface IdempotencyKeys {
  /**
   * Finds what was committed under a key that has not expired, on any shard of the database.
   *
   * @param waitMs how long to wait for the answer, if less than a statement's timeout
   * @throws ShardUnavailableError `shard-unavailable` when the database cannot be asked, or does not answer in that time
   */
  find(scope: KeyScope, waitMs?: number): Promise<StoredKey | undefined>;
  /**
   * Deletes expired keys, beginning with those that expired first, and skips rows that others have locked.
   *
   * @param countMax the maximum number of keys to delete
   * @returns how many were deleted
   */
  deleteExpired(countMax: number): Promise<number>;
  /**
   * Keys of handlers that were written at least `olderThanMs` ago, oldest first.
   *
   * @param page.after the `next` of the previous page
   */
  findHandlerKeys(page: {
    readonly olderThanMs: number;
    readonly limit: number;
    readonly after?: string;
  }): Promise<Page<HandlerKey>>;
  /** Deletes keys, expired or not; returns how many existed. */
  delete(scopes: readonly KeyScope[]): Promise<number>;
}

/** The event for which a handler executes an action. */
export interface HandledEvent {
  /** The handler's permanent id in the database of the event. */
  readonly handler: string;
  readonly eventId: string;
  /** The shard of the event, whose database knows whether it may be delivered again. */
  readonly shard: ShardIdentifier;
}

/**
 * Added to the namespace for handlers' keys. No configured namespace contains a `#`, so keys of handlers and of clients never
 * collide.
 */
const handlersSuffix = '#handlers';

/** The namespace of handlers' keys, which no client can use. */
export function handlersNamespace(namespace: string): string {
  return `${namespace}${handlersSuffix}`;
}

/** The event as one text, as it is stored beside a key. */
export function sourceOf({ handler, eventId, shard }: HandledEvent): string {
  return `${shard.group}/${shard.member} ${eventId} ${handler}`;
}

/** The event that was stored beside a key; `undefined` for a text that {@link sourceOf} did not make. */
export function handledEventOf(source: string): HandledEvent | undefined {
  const [, group, member, eventId, handler] = /^(\d{1,3})\/(\d{1,2}) (\S+) (.+)$/s.exec(source) ?? [];
  if (eventId === undefined || handler === undefined) return undefined;
  try {
    return { handler, eventId, shard: ShardIdentifier.of(Number(group), Number(member)) };
  } catch {
    return undefined;
  }
}

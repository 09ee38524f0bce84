import type { Page } from './page.js';

/** Under which name a request is remembered: the same key of another principal is another key. */
export interface KeyScope {
  readonly namespace: string;
  readonly principal: string;
  /** What the caller chose: 1 to 255 characters. */
  readonly key: string;
}

/** What a change set stores with its effect, so that a repeat of the request gets the same answer. */
export interface KeyRecord extends KeyScope {
  /** Differs between requests: SHA-256 of the action's name and params in canonical form, in hexadecimal. */
  readonly fingerprint: string;
  /** The action's result as JSON; `undefined` when the action has none. */
  readonly result: string | undefined;
  /** How long the key is kept, by the database's clock. */
  readonly lifetimeMs: number;
  /** The event for which a handler executed the action, as one text; `undefined` for a key of a client. */
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
   * Finds what was committed under a key that has not expired; looks at all shards of the database.
   *
   * @param waitMs how long the answer may take, where less than a statement's timeout will do
   * @throws ShardUnavailableException `shard-unavailable`, also when there is no answer in that time
   */
  find(scope: KeyScope, waitMs?: number): Promise<StoredKey | undefined>;
  /**
   * Deletes keys that have expired, those that expired first, and passes over what others hold.
   *
   * @param countMax how many at most
   * @returns how many were deleted
   */
  deleteExpired(countMax: number): Promise<number>;
  /**
   * Keys of handlers that were written so long ago, the oldest first.
   *
   * @param page.after the `next` of the page before
   */
  findHandlerKeys(page: {
    readonly olderThanMs: number;
    readonly limit: number;
    readonly after?: string;
  }): Promise<Page<HandlerKey>>;
  /** Deletes keys, whether or not they have expired; says how many there were. */
  delete(scopes: readonly KeyScope[]): Promise<number>;
}

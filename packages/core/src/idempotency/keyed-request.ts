import type { RegisteredAction } from '../action/action-registry.js';
import { IdempotencyKeyReusedError, InvalidIdempotencyKeyError } from '../errors/action-errors.js';
import { FrameworkError } from '../errors/framework-error.js';
import { TransientStorageError } from '../errors/storage-errors.js';
import { isStorableText } from '../model/model-class.js';
import type { ActionRecord } from '../storage/change-set.js';
import {
  type HandledEvent,
  type KeyRecord,
  type KeyScope,
  type StoredKey,
  handlersNamespace,
  sourceOf,
} from '../storage/idempotency-keys.js';
import type { TransactionManager } from '../storage/transaction-manager.js';
import { fingerprintOf, isEarlierFingerprint } from './request-fingerprint.js';

/**
 * How long handlers' keys are kept: practically for ever, until they are deleted because their events cannot be
 * delivered again.
 */
const handlerKeyLifetimeMs = 100 * 365 * 24 * 60 * 60 * 1_000;

/** A request with an idempotency key: the record that is stored with its effect, and the result that a repeat gets. */
export class KeyedRequest<Result> {
  readonly scope: KeyScope;
  readonly #action: ActionRecord;
  readonly #fingerprint: string;
  readonly #registered: RegisteredAction<never, Result>;
  readonly #event: HandledEvent | undefined;

  private constructor(
    scope: KeyScope,
    action: ActionRecord,
    fingerprint: string,
    registered: RegisteredAction<never, Result>,
    event: HandledEvent | undefined,
  ) {
    this.scope = scope;
    this.#action = action;
    this.#fingerprint = fingerprint;
    this.#registered = registered;
    this.#event = event;
  }

  /**
   * @param event the event for which a handler executes the action, if one does
   * @throws InvalidIdempotencyKeyError `invalid-idempotency-key`
   */
  static of<Result>(
    key: string,
    action: ActionRecord,
    registered: RegisteredAction<never, Result>,
    event: HandledEvent | undefined,
  ): KeyedRequest<Result> {
    const scope = keyScope(action, key, event !== undefined);
    const fingerprint = fingerprintOf(action, registered.paramsSchema);
    return new KeyedRequest<Result>(scope, action, fingerprint, registered, event);
  }

  /**
   * The record to store with the effect. Throws the errors of the result's codec.
   *
   * @param lifetimeMs how long a client's key is kept
   */
  record(result: Result, lifetimeMs: number): KeyRecord {
    return {
      ...this.scope,
      fingerprint: this.#fingerprint,
      result: this.#registered.resultCodec.encode(result),
      lifetimeMs: this.#event === undefined ? lifetimeMs : handlerKeyLifetimeMs,
      source: this.#event && sourceOf(this.#event),
    };
  }

  /**
   * The result of the request that was committed under the key.
   *
   * @throws IdempotencyKeyReusedError `idempotency-key-reused` when that was a different request
   */
  replay(stored: StoredKey): Result {
    if (!this.#isSame(stored)) throw new IdempotencyKeyReusedError(this.scope.key, this.#action.name, stored);
    // The codec belongs to the action and has validated the value.
    return this.#registered.resultCodec.decode(stored.result) as Result;
  }

  #isSame({ fingerprint }: StoredKey): boolean {
    if (fingerprint === this.#fingerprint) return true;
    return isEarlierFingerprint(fingerprint, this.#action, this.#registered.paramsSchema);
  }

  /**
   * Reads the record of a key on a shard that has just reported the key as taken.
   *
   * @throws TransientStorageError `transient-storage` when the key has expired since then; running again can help
   */
  async taken({ keys, shard }: TransactionManager): Promise<StoredKey> {
    const stored = await keys.find(this.scope);
    if (stored !== undefined) return stored;
    throw new TransientStorageError(shard, 'the idempotency key expired while the request ran');
  }

  /** Whether an error may be caused by the request's own earlier effect. It cannot be if storage was unavailable. */
  static mayBeOwnEffect(error: unknown): boolean {
    const known = FrameworkError.find(error);
    if (known === undefined || known.code === 'stale-record') return true;
    return !known.retryable && known.code !== 'idempotency-key-reused';
  }
}

/** Fits into one entry of an index. */
const charactersMax = 255;

/**
 * The scope in which a key is unique: the namespace and the principal.
 *
 * @param ofHandler whether a handler executes the action; handlers' keys have a scope of their own
 * @throws InvalidIdempotencyKeyError `invalid-idempotency-key` when the key is empty, longer than 255 characters, or
 * not storable as text
 */
function keyScope({ namespace, principal }: ActionRecord, key: string, ofHandler: boolean): KeyScope {
  if (typeof key !== 'string') throw new InvalidIdempotencyKeyError('is not a string');
  if (key.length === 0) throw new InvalidIdempotencyKeyError('is empty');
  if (key.length > charactersMax)
    throw new InvalidIdempotencyKeyError(`has ${key.length} characters: keep it within ${charactersMax}`);
  if (!isStorableText(key)) throw new InvalidIdempotencyKeyError('contains an invalid character');
  return { namespace: ofHandler ? handlersNamespace(namespace) : namespace, principal, key };
}

import type * as z from 'zod';

import { IdempotencyKeyReusedError, InvalidIdempotencyKeyError } from '../errors/action-errors.js';
import { FrameworkError } from '../errors/framework-error.js';
import { isStorableText } from '../id/model-class.js';
import { callSafely } from '../observer.js';
import type { ActionRecord } from '../storage/change-set.js';
import {
  type HandledEvent,
  type KeyRecord,
  type KeyScope,
  type StoredKey,
  handlersNamespace,
  sourceOf,
} from '../storage/idempotency-keys.js';
import { TransientStorageError } from '../storage/storage-errors.js';
import type { TransactionManager } from '../storage/transaction-manager.js';
import { fingerprintOf } from './request-fingerprint.js';

/**
 * How long handlers' keys are kept: practically for ever, until they are deleted because their events cannot be
 * delivered again.
 */
const handlerKeyLifetimeMs = 100 * 365 * 24 * 60 * 60 * 1_000;

/** The part of an action that concerns the key of its executions. */
interface KeyedAction {
  readonly paramsSchema: z.ZodType | undefined;
  readonly resultCodec: ResultCodec;
}

/** Writes an action's result beside an idempotency key, and reads it back. */
export interface ResultCodec {
  /**
   * The result as JSON; `undefined` for `undefined`.
   *
   * @throws InvariantViolationError `invariant-violation` for a result of an action that declares none
   * @throws UnstorableValueError `unstorable-value` when it is not what the action declares, or would not be read back unchanged:
   * a repeat must get the same answer
   */
  encode(result: unknown): string | undefined;
  /**
   * Reads a stored result, as a repeat returns it.
   *
   * @throws UnstorableValueError `unstorable-value` when the stored result can no longer be read
   */
  decode(json: string | undefined): unknown;
}

/** The part of an execution's configuration that concerns its key. */
interface KeyConfiguration {
  /** The event for which a handler executes the action, if one does. */
  readonly handledEvent?: HandledEvent;
  readonly checkKeyEverywhere?: boolean;
  readonly onReplayed?: () => void;
}

/** A request with an idempotency key: the record that is stored with its effect, and the result that a repeat gets. */
export class KeyedRequest<Result> {
  readonly scope: KeyScope;
  /** Whether every database is asked for the key before the action is performed. */
  readonly isSearchedEverywhere: boolean;
  readonly #action: ActionRecord;
  readonly #fingerprint: string;
  readonly #registered: KeyedAction;
  readonly #event: HandledEvent | undefined;
  readonly #onReplayed: (() => void) | undefined;

  /** @throws InvalidIdempotencyKeyError `invalid-idempotency-key` when the key is empty, too long or not storable */
  constructor(
    key: string,
    action: ActionRecord,
    registered: KeyedAction,
    { handledEvent, checkKeyEverywhere = true, onReplayed }: KeyConfiguration,
  ) {
    this.scope = keyScope(action, key, handledEvent !== undefined);
    this.isSearchedEverywhere = checkKeyEverywhere;
    this.#action = action;
    this.#fingerprint = fingerprintOf(action, registered.paramsSchema);
    this.#registered = registered;
    this.#event = handledEvent;
    this.#onReplayed = onReplayed;
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
   * Returns the result of the request that was committed under the key, and tells the caller that it is a repeat.
   *
   * @throws IdempotencyKeyReusedError `idempotency-key-reused` when that was a different request
   */
  replay(stored: StoredKey): Result {
    if (!this.isSame(stored)) throw new IdempotencyKeyReusedError(this.scope.key, this.#action.name, stored);
    // The codec belongs to the action and has validated the value.
    const result = this.#registered.resultCodec.decode(stored.result) as Result;
    callSafely(() => this.#onReplayed?.(), 'onReplayed has failed; the request itself had succeeded before');
    return result;
  }

  /** Whether a record is that of this request, not of another one under its key. */
  readonly isSame = ({ fingerprint }: StoredKey): boolean => {
    if (fingerprint === this.#fingerprint) return true;
    // A request that was stored before the schema had its defaults has the fingerprint of all its fields.
    return fingerprint === fingerprintOf(this.#action, undefined);
  };

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

  /** Whether an error may be caused by the request's own earlier effect. It cannot be if storage was unavailable or closed. */
  static mayBeOwnEffect(error: unknown): boolean {
    const known = FrameworkError.find(error);
    if (known === undefined || known.code === 'stale-record') return true;
    return !known.retryable && known.code !== 'idempotency-key-reused' && known.code !== 'databases-closed';
  }
}

/** The longest key that fits into an index entry. */
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
    throw new InvalidIdempotencyKeyError(
      `has ${key.length} characters: at most ${charactersMax} are allowed`,
    );
  if (!isStorableText(key))
    throw new InvalidIdempotencyKeyError(
      'contains \\u0000 or half of a surrogate pair, which no database can store',
    );
  return { namespace: ofHandler ? handlersNamespace(namespace) : namespace, principal, key };
}

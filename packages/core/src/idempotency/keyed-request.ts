import type { RegisteredAction } from '../action/action-registry.js';
import { IdempotencyKeyReusedException } from '../errors/action-exceptions.js';
import { FrameworkException } from '../errors/framework-exception.js';
import { TransientStorageException } from '../errors/storage-exceptions.js';
import type { ActionRecord } from '../persistence/change-set.js';
import type { KeyRecord, KeyScope, StoredKey } from '../persistence/idempotency-keys.js';
import type { TransactionManager } from '../persistence/transaction-manager.js';
import { fingerprintOf } from './fingerprint-of.js';
import { keyScope } from './key-scope.js';
import type { ResultCodec } from './result-codec.js';

/** One request under an idempotency key: what is stored with its effect, and what a repeat of it gets. */
export class KeyedRequest<Result> {
  readonly scope: KeyScope;
  readonly #action: ActionRecord;
  readonly #fingerprint: string;
  readonly #codec: ResultCodec;

  private constructor(scope: KeyScope, action: ActionRecord, fingerprint: string, codec: ResultCodec) {
    this.scope = scope;
    this.#action = action;
    this.#fingerprint = fingerprint;
    this.#codec = codec;
  }

  /** @throws InvalidIdempotencyKeyException `invalid-idempotency-key` */
  static async of<Result>(
    key: string,
    action: ActionRecord,
    { resultCodec }: RegisteredAction<never, Result>,
  ): Promise<KeyedRequest<Result>> {
    return new KeyedRequest<Result>(keyScope(action, key), action, await fingerprintOf(action), resultCodec);
  }

  /** What is stored with the effect; throws as {@link ResultCodec.encode}. */
  record(result: Result, lifetimeMs: number): KeyRecord {
    return {
      ...this.scope,
      fingerprint: this.#fingerprint,
      result: this.#codec.encode(result),
      lifetimeMs,
    };
  }

  /**
   * The result of the request that was committed under the key.
   *
   * @throws IdempotencyKeyReusedException `idempotency-key-reused` when that was another request
   */
  replay(stored: StoredKey): Result {
    if (stored.fingerprint !== this.#fingerprint)
      throw new IdempotencyKeyReusedException(this.scope.key, this.#action.name, stored);
    // The codec is the action's, and has checked what it read.
    return this.#codec.decode(stored.result) as Result;
  }

  /**
   * What was committed under the key on a shard that has just said that it is taken.
   *
   * @throws TransientStorageException `transient-storage` when it expired in between: running again can help
   */
  async taken({ keys, shard }: TransactionManager): Promise<StoredKey> {
    const stored = await keys.find(this.scope);
    if (stored !== undefined) return stored;
    throw new TransientStorageException(shard, 'the idempotency key expired at this very moment');
  }

  /** Whether an error may come from the request's own earlier effect: not when storage could not serve. */
  static mayBeOwnEffect(error: unknown): boolean {
    const known = FrameworkException.find(error);
    if (known === undefined || known.code === 'stale-record') return true;
    return !known.retryable && known.code !== 'idempotency-key-reused';
  }
}

import { type ShardIdentifier, ShardUnavailableError } from '@framework/core';

/** A shard is busy with as many requests as it may have; this one was not served. */
export class ShardBusyError extends ShardUnavailableError {
  constructor(shard: ShardIdentifier, requestsMax: number) {
    super(shard, `it is busy with ${requestsMax} requests of this process, as many as it may have`);
  }
}

/**
 * Limits how many requests a shard has at the same time, so that a slow shard cannot take the memory and the connections of requests
 * to others.
 */
export class ShardCapacity {
  readonly #requestsMax: number;
  readonly #counts = new Map<ShardIdentifier, number>();

  constructor(requestsMax: number) {
    this.#requestsMax = requestsMax;
  }

  /**
   * Refuses a request before work is done for it.
   *
   * @throws ShardBusyError `shard-unavailable`
   */
  assertFree(shards: readonly ShardIdentifier[]): void {
    const busy = shards.find((shard) => (this.#counts.get(shard) ?? 0) >= this.#requestsMax);
    if (busy !== undefined) throw new ShardBusyError(busy, this.#requestsMax);
  }

  /**
   * Serves a request that asks shards, and counts it until it ends.
   *
   * @throws ShardBusyError `shard-unavailable` when one of them has as many requests as it may have
   */
  async use<T>(shards: readonly ShardIdentifier[], serve: () => Promise<T> | T): Promise<T> {
    this.assertFree(shards);
    for (const shard of shards) this.#counts.set(shard, (this.#counts.get(shard) ?? 0) + 1);
    try {
      return await serve();
    } finally {
      for (const shard of shards) this.#leave(shard);
    }
  }

  #leave(shard: ShardIdentifier): void {
    const left = (this.#counts.get(shard) ?? 1) - 1;
    if (left === 0) this.#counts.delete(shard);
    else this.#counts.set(shard, left);
  }
}

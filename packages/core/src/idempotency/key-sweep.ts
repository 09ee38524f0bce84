import type { DatabaseRegistry } from '../sharding/database-registry.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { IdempotencySettings } from './idempotency-settings.js';

/** Deletes expired keys now and then, a bounded number at once: nobody waits for it, and it needs no timer. */
export class KeySweep {
  readonly #databases: DatabaseRegistry;
  readonly #commitsPerSweep: number;
  readonly #rowsMax: number;
  readonly #commitCounts = new Map<ShardIdentifier, number>();

  constructor(databases: DatabaseRegistry, { commitsPerSweep, sweepRowsMax }: IdempotencySettings) {
    this.#databases = databases;
    this.#commitsPerSweep = commitsPerSweep;
    this.#rowsMax = sweepRowsMax;
  }

  /** Counts a keyed commit on a shard; after enough of them its expired keys are deleted. */
  countCommit(shard: ShardIdentifier): void {
    const count = (this.#commitCounts.get(shard) ?? 0) + 1;
    this.#commitCounts.set(shard, count % this.#commitsPerSweep);
    if (count < this.#commitsPerSweep) return;
    // What fails now is done by a later sweep; the commit has succeeded in any case.
    this.#databases
      .transactionManager(shard)
      .keys.deleteExpired(this.#rowsMax)
      .catch(() => undefined);
  }
}

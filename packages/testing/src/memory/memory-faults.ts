import type { ShardIdentifier } from '@framework/core';

/** What is asked of a database in memory: a read, a write of one plan or of a group, or what became of a write or a key. */
export type MemoryOperation = 'read' | 'persist' | 'persist-all' | 'is-committed' | 'find-key';

/** One way of one call: `request` before anything is done, `answer` when it is done and nobody knows yet. */
export interface MemoryPassage {
  readonly operation: MemoryOperation;
  readonly shard: ShardIdentifier;
  readonly way: 'request' | 'answer';
}

/** What happens on the way: it takes as long as the promise does, and the connection is lost when it throws {@link ConnectionLost}. */
export type MemoryFault = (passage: MemoryPassage) => Promise<void> | undefined;

/**
 * Thrown by a fault to lose the connection: a read fails as `transient-storage`, and the outcome of a write is unknown, whether
 * its request was lost or its answer. Any other error is what the storage says, such as a ShardUnavailableException.
 */
export class ConnectionLost extends Error {
  constructor() {
    super('the connection was lost');
  }
}

/**
 * How the way to databases in memory misbehaves: it is slow, or loses requests and answers. By default it does neither.
 *
 * ```ts
 * const faults = new MemoryFaults();
 * const databases = openDatabases(memorySharding(shard), memory({ faults }));
 * // Every read gets its answer late, so that others commit in between.
 * faults.inject(({ operation, way }) =>
 *   operation === 'read' && way === 'answer' ? clock.sleep(100) : undefined,
 * );
 * ```
 */
export class MemoryFaults {
  #fault: MemoryFault | undefined;

  /** Lets every passage from now on go through a fault, or through none. */
  inject(fault: MemoryFault | undefined): void {
    this.#fault = fault;
  }

  /** Does some work of the database, with the ways to it and back. */
  async call<T>(operation: MemoryOperation, shard: ShardIdentifier, work: () => T): Promise<T> {
    // As with a database, others may be faster between a question and its answer.
    await this.#fault?.({ operation, shard, way: 'request' });
    const result = work();
    if (this.#fault !== undefined) await this.#fault({ operation, shard, way: 'answer' });
    return result;
  }
}

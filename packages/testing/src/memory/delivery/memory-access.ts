import { ShardIdentifier } from '@framework/core';

import { MemoryFaults, type StoreMethod } from '../memory-faults.js';
import type { MemoryDeliveryTables } from './memory-delivery-tables.js';

/** One process's access to a database in memory. After the death of the process, its calls have no effect. */
export class MemoryAccess {
  readonly slotCount: number;
  /** How often each method was called. */
  readonly calls = new Map<StoreMethod, number>();
  /** Errors for the next calls of a method, one each. */
  readonly failures = new Map<StoreMethod, unknown[]>();
  /** Errors for the next calls of a method, one each, thrown after the work is done: the answer is lost. */
  readonly lostAnswers = new Map<StoreMethod, unknown[]>();
  /**
   * Promises for which the answers of the next calls of a method wait, one each, after the work is done: the answer is
   * slow.
   */
  readonly delays = new Map<StoreMethod, Promise<unknown>[]>();
  readonly #tables: MemoryDeliveryTables;
  readonly #faults: MemoryFaults;
  readonly #shard: ShardIdentifier;

  /**
   * @param faults the faults on the way to the database. Default: none
   * @param shard a shard of the database, which identifies it to faults
   */
  constructor(
    tables: MemoryDeliveryTables,
    faults: MemoryFaults = new MemoryFaults(),
    shard: ShardIdentifier = ShardIdentifier.of(0, 0),
  ) {
    this.#tables = tables;
    this.slotCount = tables.slotCount;
    this.#faults = faults;
    this.#shard = shard;
  }

  /** How often any method was called. */
  get callCount(): number {
    return [...this.calls.values()].reduce((sum, count) => sum + count, 0);
  }

  /** Whether the process has ended. */
  get dead(): boolean {
    return this.#faults.isDead;
  }

  /** Ends the process: none of its calls is carried out or answered any more. */
  kill(): void {
    this.#faults.kill();
  }

  /** Carries out a call of a method, unless the process is dead or the call is meant to fail. */
  async answer<T>(method: StoreMethod, work: (tables: MemoryDeliveryTables) => T): Promise<T> {
    const answer = await this.#faults.ask({ operation: method, shard: this.#shard }, () => {
      this.calls.set(method, (this.calls.get(method) ?? 0) + 1);
      throwNext(this.failures.get(method));
      return work(this.#tables);
    });
    await this.delays.get(method)?.shift();
    // The process may have been killed while it waited.
    if (this.dead) return new Promise(() => undefined);
    throwNext(this.lostAnswers.get(method));
    return answer;
  }

  /** Calls back for every notification that reaches the process. Returns a function that stops listening. */
  listen(onNotification: () => void): () => void {
    const listener = (): void => void this.#faults.hear(this.#shard, onNotification);
    this.#tables.listeners.add(listener);
    return () => void this.#tables.listeners.delete(listener);
  }
}

function throwNext(errors: unknown[] | undefined): void {
  if (errors !== undefined && errors.length > 0) throw errors.shift();
}

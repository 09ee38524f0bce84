import type { DeliveryStore } from '@framework/core';
import type { MemoryDeliveryTables } from './memory-delivery-tables.js';

/** A method of one of the store's ports, such as `parked.park`. */
export type StoreMethod = {
  [Port in keyof DeliveryStore]: DeliveryStore[Port] extends object
    ? `${Port}.${keyof DeliveryStore[Port] & string}`
    : never;
}[keyof DeliveryStore];

/** One process's access to a database in memory; what the process does after its death has no effect. */
export class MemoryAccess {
  readonly slotCount: number;
  /** How often each method was called. */
  readonly calls = new Map<StoreMethod, number>();
  /** Thrown by the next calls of a method, one each. */
  readonly failures = new Map<StoreMethod, unknown[]>();
  /** Thrown by the next calls of a method, one each, after they have done their work: the answer is lost. */
  readonly lostAnswers = new Map<StoreMethod, unknown[]>();
  /** What the answers of the next calls of a method wait for, one each, when the work is done: the way back is slow. */
  readonly delays = new Map<StoreMethod, Promise<unknown>[]>();
  readonly #tables: MemoryDeliveryTables;
  #dead = false;

  constructor(tables: MemoryDeliveryTables) {
    this.#tables = tables;
    this.slotCount = tables.slotCount;
  }

  /** How often any method was called. */
  get callCount(): number {
    return [...this.calls.values()].reduce((sum, count) => sum + count, 0);
  }

  /** Whether the process has ended. */
  get dead(): boolean {
    return this.#dead;
  }

  /** Ends the process: nothing that it asks for is answered or done any more. */
  kill(): void {
    this.#dead = true;
  }

  /** Answers a call of a method, unless the process is dead or the call is to fail. */
  async answer<T>(method: StoreMethod, work: (tables: MemoryDeliveryTables) => T): Promise<T> {
    await Promise.resolve();
    if (this.#dead) return new Promise(() => undefined);
    this.calls.set(method, (this.calls.get(method) ?? 0) + 1);
    const [delay, failure, lostAnswer] = [this.delays, this.failures, this.lostAnswers].map((each) =>
      each.get(method),
    );
    if (failure !== undefined && failure.length > 0) throw failure.shift();
    const answer = work(this.#tables);
    await delay?.shift();
    // It may have been killed while it waited.
    if (this.#dead) return new Promise(() => undefined);
    if (lostAnswer !== undefined && lostAnswer.length > 0) throw lostAnswer.shift();
    return answer;
  }
}

import type { Cursor, DeliverableEvent, BlockedPlace, SlotLease } from '@framework/core/adapter';
import { seededRandom } from '@framework/testing';
import { Account, firstShard } from '@framework/conformance';
import type { Both, StorePair } from './store-pair.js';

export const handlerNames: readonly string[] = ['notify', 'index', 'settle', 'count'];
const nobody = '00000000-0000-4000-8000-000000000000';
const accountCount = 6;

/** What a sequence of operations has learnt from two stores, and the choice of the next operation. */
export class Known {
  readonly stores: StorePair;
  readonly accounts: readonly Account[] = Array.from({ length: accountCount }, () =>
    Account.blank(firstShard, new Date(0)),
  );
  readonly events: Both<DeliverableEvent>[] = [];
  readonly cursors: Both<Cursor>[] = [];
  /** All tokens so far, by handler and slot, the latest one last. */
  readonly #leases = new Map<string, Both<string>[]>();
  readonly #tokenNames = new Map<string, string>();
  #random: () => number = seededRandom(0);

  constructor(stores: StorePair) {
    this.stores = stores;
  }

  /** Uses a seed for choices from now on. */
  choose(seed: number): void {
    this.#random = seededRandom(seed);
  }

  noteLeases(inMemory: readonly SlotLease[], onPostgres: readonly SlotLease[]): void {
    for (const { handler, slot, token } of inMemory) {
      const same = onPostgres.find((lease) => lease.handler === handler && lease.slot === slot);
      const known = this.#leases.get(`${handler} ${slot}`) ?? [];
      this.#leases.set(`${handler} ${slot}`, known);
      if (same === undefined || known.at(-1)?.memory === token) continue;
      const name = `${handler} ${slot} ${known.length}`;
      this.#tokenNames.set(token, name).set(same.token, name);
      known.push({ memory: token, postgres: same.token });
    }
  }

  /** Mostly the last token for a place, sometimes an earlier one or none. */
  token({ handler, slot }: BlockedPlace): Both<string> {
    const known = this.#leases.get(`${handler} ${slot}`) ?? [];
    const none = { memory: nobody, postgres: nobody };
    return this.chance(0.9) ? (known.at(-1) ?? none) : this.of([none, ...known]);
  }

  named(tokens: readonly string[]): readonly string[] {
    return tokens.map((token) => this.#tokenNames.get(token) ?? 'nobody').toSorted();
  }

  places(): BlockedPlace[] {
    return this.some(handlerNames).flatMap((handler) => this.slots().map((slot) => ({ handler, slot })));
  }

  slots(): number[] {
    return Array.from({ length: this.stores.slotCount }, (_unused, slot) => slot);
  }

  event(): Both<DeliverableEvent> | undefined {
    return this.events.length === 0 ? undefined : this.of(this.events);
  }

  below(end: number): number {
    return Math.floor(this.#random() * end);
  }

  chance(share: number): boolean {
    return this.#random() < share;
  }

  of<T>(list: readonly T[]): T {
    const item = list[this.below(list.length)];
    if (list.length === 0) throw new Error('There is nothing to choose from');
    return item as T;
  }

  /** About half of the list. */
  some<T>(list: readonly T[]): T[] {
    return list.filter(() => this.chance(0.5));
  }
}

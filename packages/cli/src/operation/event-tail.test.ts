import type { TrackedEvent } from '@framework/core/adapter';
import type { EventSearch, OfShards, Operator, PageOptions, PartialPage } from '@framework/operator';
import { expect, test } from 'vitest';

import { EventTail } from './event-tail.js';

/** A log, whose newest event comes first. */
class Log implements Pick<Operator, 'events'> {
  readonly #events: OfShards<TrackedEvent>[] = [];

  async events(_filter?: EventSearch, page?: PageOptions): Promise<PartialPage<OfShards<TrackedEvent>>> {
    const from = Number(page?.after ?? '0');
    const end = from + (page?.limit ?? 100);
    const next = end < this.#events.length ? String(end) : undefined;
    return { items: this.#events.slice(from, end), next, failures: [] };
  }

  /** @param place how many newer events there are */
  add(id: string, { place = 0, type = 'A', createdMs = 1_000_000 } = {}): void {
    const event = { id, type, createdDate: new Date(createdMs) } as TrackedEvent['event'];
    this.#events.splice(place, 0, { event, deliveries: [], shards: ['0/0'] });
  }
}

/** A tail of a log that has these events, of which the given number was shown. */
async function followed({
  count = 0,
  past = 10,
  filter = {},
}: { count?: number; past?: number; filter?: EventSearch } = {}) {
  const log = new Log();
  for (let index = 1; index <= count; index++) log.add(`past-${index}`);
  const tail = new EventTail(log, filter);
  const first = idsOf(await tail.past(past));
  const look = async () => idsOf(await tail.look());
  return { log, tail, first, look };
}

function idsOf({ items }: { readonly items: readonly OfShards<TrackedEvent>[] }): readonly string[] {
  return items.map(({ event }) => event.id);
}

test('the newest events of the past come first, the oldest of them first', async () => {
  const { first, look } = await followed({ count: 500, past: 2 });
  expect(first).toEqual(['past-499', 'past-500']);
  expect(await look()).toEqual([]);
});

test('each new event is seen once, also one that was committed late', async () => {
  const { log, look } = await followed({ count: 500 });
  log.add('a');
  log.add('b');
  expect(await look()).toEqual(['a', 'b']);
  log.add('late', { place: 150 });
  log.add('c');
  expect(await look()).toEqual(['late', 'c']);
  expect(await look()).toEqual([]);
});

test('events of long ago are not new when their database answers again', async () => {
  const { log, look } = await followed({ count: 1 });
  log.add('old', { createdMs: 1_000_000 - 600_000 });
  log.add('recent', { createdMs: 1_000_000 - 60_000 });
  expect(await look()).toEqual(['recent']);
});

test('an empty log is followed from its first event', async () => {
  const { log, look } = await followed();
  log.add('a');
  expect(await look()).toEqual(['a']);
});

test('only the wanted types are shown', async () => {
  const { log, look, first } = await followed({ count: 2, filter: { type: 'B' } });
  log.add('a');
  log.add('b', { type: 'B' });
  expect([first, await look()]).toEqual([[], ['b']]);
});

test('more new events than one look reads are cut off', async () => {
  const { log, tail } = await followed({ count: 1 });
  for (let index = 0; index < 10_500; index++) log.add(`new-${index}`);
  const { items, isCut } = await tail.look();
  expect([items.length, items.at(-1)?.event.id, isCut]).toEqual([10_000, 'new-10499', true]);
});

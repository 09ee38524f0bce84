import type { TrackedEvent } from '@framework/core/adapter';
import type { EventSearch, OfShards, Operator, PageOptions, PartialPage } from '@framework/operator';
import { expect, test } from 'vitest';

import { EventTail } from './event-tail.js';

/** The logs of two databases; the newest event of each comes first, and without a shard, that of both by their dates. */
class Logs implements Pick<Operator, 'events' | 'shardsOfDatabases'> {
  readonly shardsOfDatabases = [['0/0'], ['1/0']];
  /** The shards of databases that are down. */
  readonly down = new Set<string>();
  readonly #events: OfShards<TrackedEvent>[] = [];

  async events(
    { shard }: EventSearch = {},
    { limit = 100, after = '0' }: PageOptions = {},
  ): Promise<PartialPage<OfShards<TrackedEvent>>> {
    const isAsked = (each: string): boolean => (shard ?? each) === each;
    const failures = [...this.down].filter(isAsked).map((each) => ({ shards: [each], code: 'internal' }));
    const found = this.#events
      .filter(({ shards: [own = ''] }) => isAsked(own) && !this.down.has(own))
      .toSorted((one, other) => other.event.createdDate.getTime() - one.event.createdDate.getTime());
    const end = Number(after) + limit;
    const next = end < found.length ? String(end) : undefined;
    return { items: found.slice(Number(after), end), next, failures };
  }

  /** @param place how many newer events there are */
  add(id: string, { place = 0, type = 'A', createdMs = 1_000_000, shard = '0/0' } = {}): void {
    const event = { id, type, createdDate: new Date(createdMs) } as TrackedEvent['event'];
    this.#events.splice(place, 0, { event, deliveries: [], shards: [shard] });
  }
}

/** A tail of logs, the first of which has these events, of which the given number was shown. */
async function followed({
  count = 0,
  past = 10,
  filter = {},
}: { count?: number; past?: number; filter?: EventSearch } = {}) {
  const log = new Logs();
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

test('events are new by the clock of their own database, however far it is behind that of another one', async () => {
  const late = { createdMs: 1_000_000 - 180_000, shard: '1/0' };
  const { log, look } = await followed({ count: 500 });
  log.add('first', late);
  expect(await look()).toEqual(['first']);
  log.add('second', { ...late, createdMs: late.createdMs + 1 });
  log.add('third', { createdMs: 1_000_001 });
  expect(await look()).toEqual(['second', 'third']);
});

test('events of long ago are not new when their database answers for the first time', async () => {
  const log = new Logs();
  log.add('newest');
  log.add('old', { createdMs: 1_000_000 - 600_000, shard: '1/0' });
  log.add('recent', { createdMs: 1_000_000 - 60_000, shard: '1/0' });
  log.down.add('1/0');
  const tail = new EventTail(log, {});
  expect((await tail.past(10)).failures).toHaveLength(1);
  log.down.clear();
  expect(idsOf(await tail.look())).toEqual(['recent']);
});

test('what is there when the first database answers at last is not new', async () => {
  const log = new Logs();
  log.add('old');
  for (const shard of ['0/0', '1/0']) log.down.add(shard);
  const tail = new EventTail(log, {});
  await tail.past(10);
  const { items, failures } = await tail.look();
  expect([items, failures.length]).toEqual([[], 2]);
  log.down.clear();
  expect(idsOf(await tail.look())).toEqual([]);
  log.add('new');
  expect(idsOf(await tail.look())).toEqual(['new']);
});

test('the past of several databases is shown by their dates', async () => {
  const log = new Logs();
  for (const [createdMs, shard] of [
    [1, '0/0'],
    [2, '1/0'],
    [3, '0/0'],
    [4, '1/0'],
  ] as const)
    log.add(`at-${createdMs}`, { createdMs, shard });
  expect(idsOf(await new EventTail(log, {}).past(3))).toEqual(['at-2', 'at-3', 'at-4']);
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

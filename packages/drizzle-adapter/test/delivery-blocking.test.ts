import { ShardIdentifier } from '@framework/core';
import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, it } from 'vitest';
import { allSlots, beginningOf } from './fixtures/delivery-store.js';
import { alone, everywhere, never, nobody, step, withEvents } from './fixtures/blocked-events.js';
import { query } from './fixtures/query.js';

describe('blocked events', () => {
  it('come up one at a time for each model, in the order of versions, when they are due', async () => {
    const { store, events, block } = await withEvents('a', 1, 2, 3);
    const [first, second, third] = events;
    await block({ event: third! }, { event: second! });
    await block({ event: first!, attempts: 1, error: 'boom', retryAfterMs: never });
    expect(await store.blocked.dueHeads(everywhere, 10)).toEqual([]);
    expect(await store.blocked.nextDueMs(everywhere)).toBeGreaterThan(never - 60_000);
    expect(await store.blocked.models(everywhere, { limit: 10 })).toMatchObject([
      { handler: 'notify', modelId: 'a', modelName: 'Thing' },
    ]);

    await block({ event: first!, attempts: 9 });
    const [row] = (await store.deadLetters.find({ eventId: first!.id }, { limit: 1 })).items;
    expect(row).toMatchObject({ attempts: 1, error: 'boom', dead: false });
  });

  it('that were due for longer come first, and are suspects until an attempt at them has ended', async () => {
    const { store, events: first, block, write } = await withEvents('a', 1);
    await write('b', 1);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
    await block({ event: first[0]! });
    const suspect = events.find(({ modelId }) => modelId === 'b')!;
    await block({ event: suspect, suspect: true, retryAfterMs: -never });
    const heads = await store.blocked.dueHeads(everywhere, 1);
    expect(heads).toMatchObject([{ event: { id: suspect.id }, suspect: true }]);
    await store.blocked.beginAttempt(heads[0]!, alone('first'));
    expect(await store.blocked.dueHeads(everywhere, 1)).toMatchObject([{ suspect: true }]);
    const outcome = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    await store.blocked.endAttempt(heads[0]!, undefined, { ...outcome, retryAfterMs: -never });
    await store.blocked.endAttempt(heads[0]!, alone('first'), outcome);
    expect(await store.blocked.dueHeads(everywhere, 10)).toMatchObject([
      { event: { id: first[0]!.id } },
      { event: { id: suspect.id }, suspect: false },
    ]);
  });

  it('become dead letters, which hold back their model until they are replayed or skipped', async () => {
    const { store, events, block } = await withEvents('a', 1, 2);
    await block(...events.map((event) => ({ event })));
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    await store.blocked.beginAttempt(head!, alone('first'));
    await store.blocked.endAttempt(head!, alone('first'), { kind: 'dead', error: 'poison' });
    expect(await store.blocked.dueHeads(everywhere, 10)).toEqual([]);
    expect((await store.deadLetters.find({ dead: true }, { limit: 10 })).items).toMatchObject([
      { error: 'poison', attempts: 1 },
    ]);

    expect((await store.deadLetters.replay({ handler: 'another' }, step)).count).toBe(0);
    expect((await store.deadLetters.replay({ handler: 'notify' }, step)).count).toBe(1);
    const [again] = await store.blocked.dueHeads(everywhere, 10);
    expect(again).toMatchObject({ attempts: 0, event: { id: events[0]!.id } });
    await store.blocked.endAttempt(again!, undefined, { kind: 'dead', error: 'poison' });
    expect((await store.deadLetters.skip({ eventId: events[0]!.id }, step)).count).toBe(1);
    expect(await store.blocked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: events[1]!.id } }]);
  });

  it('are due from when they are replayed, however long ago they were blocked', async () => {
    const { store, events: first, block, write, url } = await withEvents('a', 1);
    await write('b', 1);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
    await block({ event: first[0]!, dead: true });
    await query(url, `update eventlog.parked_events set parked_date = parked_date - interval '1 month'`);
    const retried = events.find(({ modelId }) => modelId === 'b')!;
    await block({ event: retried, attempts: 1, retryAfterMs: 0 });
    const replayed = new Date((await query<{ now: string }>(url, 'select clock_timestamp() as now'))[0]!.now);
    await store.deadLetters.replay({}, step);
    const heads = await store.blocked.dueHeads(everywhere, 10);
    expect(heads.map(({ event }) => event.modelId)).toEqual(['b', 'a']);
    const [row] = (await store.deadLetters.find({ modelId: 'a' }, { limit: 1 })).items;
    expect(row?.nextAttemptDate?.getTime()).toBeGreaterThanOrEqual(replayed.getTime());
  });

  it('of one handler do not keep those of another one out, and each has a limit of its own', async () => {
    const { store, block, write } = await withEvents('a', 1);
    for (const id of ['b', 'c', 'd']) await write(id, 1);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
    await block(...events.map((event) => ({ event, retryAfterMs: -60_000 })));
    await block(...events.map((event) => ({ event, handler: 'elsewhere' })));
    const places = ['notify', 'elsewhere'].flatMap((handler) => allSlots.map((slot) => ({ handler, slot })));
    const asked = async (...of: Parameters<typeof store.blocked.dueHeads>): Promise<readonly string[]> =>
      (await store.blocked.dueHeads(...of)).map(({ handler }) => handler);
    expect(await asked(places, 2)).toEqual(['notify', 'notify', 'elsewhere', 'elsewhere']);
    const few = places.map((place) => ({ ...place, headsMax: place.handler === 'notify' ? 1 : 3 }));
    expect(await asked(few, 2)).toEqual(['notify', 'elsewhere', 'elsewhere']);
    expect(await asked(few, 10)).toEqual(['notify', ...Array<string>(3).fill('elsewhere')]);
  });

  it('are left out while they are tried, for their own handler and model only', async () => {
    const { store, block, write } = await withEvents('a "1"', 1);
    await write('b', 1);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
    const places = ['notify', 'elsewhere'].flatMap((handler) => allSlots.map((slot) => ({ handler, slot })));
    await block(...events.map((event) => ({ event })));
    await block(...events.map((event) => ({ event, handler: 'elsewhere' })));
    const [{ slot, modelName, modelId }] = events as [DeliverableEvent];
    const except = [{ handler: 'notify', slot, modelName, modelId }];
    const heads = await store.blocked.dueHeads(places, 10, { except });
    expect(heads.map(({ handler, event }) => `${handler} ${event.modelId}`).toSorted()).toEqual([
      'elsewhere a "1"',
      'elsewhere b',
      'notify b',
    ]);
  });

  it('that are suspects are seen in their places, also while the handler is paused, until an attempt has ended', async () => {
    const { store, events, block } = await withEvents('a', 1);
    const [event] = events as [DeliverableEvent];
    await block({ event, suspect: true, retryAfterMs: -never });
    await store.cursors.setPaused('notify', true);
    const place = { handler: 'notify', slot: event.slot };
    expect(await store.blocked.suspectPlaces(everywhere)).toEqual([place]);
    const elsewhere = everywhere.filter(({ slot }) => slot !== event.slot);
    expect(await store.blocked.suspectPlaces(elsewhere)).toEqual([]);
    await store.cursors.setPaused('notify', false);
    const [head] = await store.blocked.dueHeads(everywhere, 1);
    await store.blocked.beginAttempt(head!, alone('first'));
    expect(await store.blocked.suspectPlaces(everywhere)).toEqual([place]);
    const outcome = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    await store.blocked.endAttempt(head!, alone('first'), outcome);
    expect(await store.blocked.suspectPlaces(everywhere)).toEqual([]);
  });

  it('are skipped while they wait only by whoever says so, and what follows goes on', async () => {
    const { store, events, block } = await withEvents('a', 1, 2);
    const [first, second] = events;
    await block({ event: first!, attempts: 1, retryAfterMs: never }, { event: second! });
    const { id: eventId } = first!;
    expect((await store.deadLetters.skip({ eventId }, step)).count).toBe(0);
    expect((await store.deadLetters.skip({ eventId, dead: true }, step)).count).toBe(0);
    expect((await store.deadLetters.replay({ eventId, dead: false }, step)).count).toBe(0);
    expect(await store.blocked.dueHeads(everywhere, 10)).toEqual([]);
    expect((await store.deadLetters.skip({ eventId, dead: false }, step)).count).toBe(1);
    expect(await store.blocked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: second!.id } }]);
  });

  it('are not touched under a lease that was lost', async () => {
    const { store, events, block } = await withEvents('a', 1);
    const stale = { event: events[0]!, token: nobody };
    expect(await block(stale)).toEqual([nobody]);
    expect(await store.blocked.models(everywhere, { limit: 10 })).toEqual([]);
    await block({ event: events[0]! });
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    const lost = { ...head!, token: nobody };
    expect(await store.blocked.beginAttempt(lost, alone('first'))).toBe(false);
    for (const kind of ['done', 'retry', 'postponed', 'dead'] as const) {
      const outcome = { kind, error: 'stale', retryAfterMs: never };
      expect(await store.blocked.endAttempt(lost, alone('first'), outcome)).toBe(false);
    }
    expect(await store.blocked.dueHeads(everywhere, 10)).toHaveLength(1);
  });

  it('wait while their handler is paused', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    await store.cursors.setPaused('notify', true);
    expect(await store.blocked.dueHeads(everywhere, 10)).toEqual([]);
    await store.cursors.setPaused('notify', false);
    expect(await store.blocked.dueHeads(everywhere, 10)).toHaveLength(1);
  });

  it('are due at no time while their handler is paused, nor when they are dead letters', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    expect(await store.blocked.nextDueMs(everywhere)).toBe(0);
    await store.cursors.setPaused('notify', true);
    expect(await store.blocked.nextDueMs(everywhere)).toBeUndefined();
    await store.cursors.setPaused('notify', false);
    const [head] = await store.blocked.dueHeads(everywhere, 1);
    await store.blocked.endAttempt(head!, undefined, { kind: 'dead', error: 'poison' });
    expect(await store.blocked.nextDueMs(everywhere)).toBeUndefined();
  });

  it('are suspects in their places only when they are due, and the first of their models', async () => {
    const { store, block, write } = await withEvents('later', 1);
    await write('behind', 1, 2);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
    const [later, first, second] = events;
    await block({ event: later!, suspect: true, retryAfterMs: never });
    await block({ event: first! }, { event: second!, suspect: true });
    expect(await store.blocked.suspectPlaces(everywhere)).toEqual([]);
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    await store.blocked.endAttempt(head!, undefined, { kind: 'done' });
    expect(await store.blocked.suspectPlaces(everywhere)).toEqual([
      { handler: 'notify', slot: second!.slot },
    ]);
  });

  it('of a handler that is unknown here do not keep a known one from its turn', async () => {
    const { store, events, block } = await withEvents('a', 1, 2);
    const [first, second] = events;
    await block({ event: first!, handler: 'elsewhere' }, { event: second!, handler: 'elsewhere' });
    expect(await store.blocked.nextDueMs(everywhere)).toBeUndefined();
    await block({ event: first! });
    expect(await store.blocked.dueHeads(everywhere, 1)).toMatchObject([{ handler: 'notify' }]);
    expect(await store.blocked.nextDueMs(everywhere)).toBe(0);
  });
});

it('an event may come again until its cursor has passed it and nothing of it is blocked', async () => {
  const { store, events, block } = await withEvents('a', 1, 2);
  const shard = ShardIdentifier.of(0, 0);
  const asked = events.map(({ id }) => ({ handler: 'notify', eventId: id, shard }));
  const ofNobody = { handler: 'retired', eventId: events[0]!.id, shard };
  const again = async (): Promise<readonly string[]> =>
    (await store.blocked.mayComeAgain([...asked, ofNobody])).map(({ eventId }) => eventId);
  expect(await again()).toEqual(events.map(({ id }) => id));

  const { next } = await store.log.read(allSlots, await beginningOf(store), 10);
  const { leases } = await store.leases.renew('one', ['notify', 'elsewhere'], never);
  await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })));
  expect(await again()).toEqual([]);
  await block({ event: events[0]!, dead: true });
  expect(await again()).toEqual([events[0]!.id]);
});

it('an event that the log does not hold may come again when another database may have held its shard then', async () => {
  const { store, url } = await withEvents('a', 1);
  const dayMs = 24 * 60 * 60 * 1_000;
  const [held, moved] = [ShardIdentifier.of(0, 0), ShardIdentifier.of(0, 1)];
  const isLater = { handler: 'notify', eventId: idMadeAt(Date.now() + 2 * dayMs), shard: held };
  const isEarlier = { handler: 'notify', eventId: idMadeAt(Date.now() - dayMs), shard: held };
  const ofAnother = { ...isLater, shard: moved };
  const asked = [isLater, isEarlier, ofAnother];
  expect(await store.blocked.mayComeAgain(asked)).toEqual([isEarlier, ofAnother]);
  await query(url, 'update eventlog.shards set released_date = now()');
  expect(await store.blocked.mayComeAgain(asked)).toEqual(asked);
});

describe('operators', () => {
  it('see how far a handler is behind, and where an event stands', async () => {
    const { store, events, block } = await withEvents('a', 1, 2, 3);
    expect(await store.cursors.lag()).toMatchObject([
      { handler: 'elsewhere', pendingCount: 3 },
      { handler: 'notify', pendingCount: 3, blockedCount: 0, deadCount: 0 },
    ]);
    expect(await store.log.find(events[1]!.id)).toEqual(events[1]);
    expect(await store.cursors.hasPassed('notify', events[1]!)).toBe(false);

    const { next } = await store.log.read(allSlots, await beginningOf(store), 10);
    const { leases } = await store.leases.renew('one', ['notify'], never);
    await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })));
    await block({ event: events[0]!, dead: true, error: 'poison' }, { event: events[1]! });
    await store.cursors.setPaused('notify', true);
    expect(await store.cursors.lag()).toMatchObject([
      { handler: 'elsewhere', paused: false, pendingCount: 3, blockedCount: 0, deadCount: 0 },
      { handler: 'notify', paused: true, pendingCount: 0, oldestPendingMs: 0, blockedCount: 2, deadCount: 1 },
    ]);
    expect(await store.cursors.hasPassed('notify', events[1]!)).toBe(true);
    expect(await store.cursors.hasPassed('elsewhere', events[1]!)).toBe(false);
    for (const none of ['00000000-0000-7000-8000-000000000000', 'no id', '']) {
      expect(await store.log.find(none)).toBeUndefined();
      expect((await store.deadLetters.find({ eventId: none }, { limit: 1 })).items).toEqual([]);
    }
  });
});

/** The id of an event, a UUID version 7. */
function idMadeAt(ms: number): string {
  const digits = ms.toString(16).padStart(12, '0');
  return `${digits.slice(0, 8)}-${digits.slice(8)}-7000-8000-000000000000`;
}

import type { DeliverableEvent, DeliveryStore, ParkedEvent } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { allSlots, beginning, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';

const never = 1e9;

describe('parked events', () => {
  it('come up one at a time for each model, in the order of versions, when they are due', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3);
    const [first, second, third] = events;
    await park({ event: third! }, { event: second! });
    await park({ event: first!, attempts: 1, error: 'boom', retryAfterMs: never });
    expect(await store.dueHeads(allSlots, 10)).toEqual([]);
    expect(await store.nextDueMs(allSlots)).toBeGreaterThan(never - 60_000);
    expect(await store.parkedModels(allSlots)).toMatchObject([
      { handler: 'notify', modelId: 'a', modelName: 'Thing' },
    ]);

    await park({ event: first!, attempts: 9 });
    const [row] = (await store.findParked({ eventId: first!.id }, { limit: 1 })).items;
    expect(row).toMatchObject({ attempts: 1, error: 'boom', dead: false });
  });

  it('are counted before the attempt, and gone when it succeeds', async () => {
    const { store, events, park } = await withEvents('a', 1, 2);
    await park(...events.map((event) => ({ event })));
    for (const event of events) {
      const [head, another] = await store.dueHeads(allSlots, 10);
      expect(head).toMatchObject({ handler: 'notify', attempts: 0, suspect: false });
      expect(head!.event).toEqual(event);
      expect(another).toBeUndefined();
      expect(await store.beginAttempt(head!)).toBe(true);
      expect((await store.findParked({}, { limit: 1 })).items[0]).toMatchObject({ attempts: 1 });
      expect(await store.endAttempt(head!, { kind: 'done' })).toBe(true);
    }
    expect(await store.parkedModels(allSlots)).toEqual([]);
    expect(await store.nextDueMs(allSlots)).toBeUndefined();
  });

  it('become dead letters, which hold back their model until they are replayed or skipped', async () => {
    const { store, events, park } = await withEvents('a', 1, 2);
    await park(...events.map((event) => ({ event })));
    const [head] = await store.dueHeads(allSlots, 10);
    await store.beginAttempt(head!);
    await store.endAttempt(head!, { kind: 'dead', error: 'poison' });
    expect(await store.dueHeads(allSlots, 10)).toEqual([]);
    expect((await store.findParked({ dead: true }, { limit: 10 })).items).toMatchObject([
      { error: 'poison', attempts: 1 },
    ]);

    expect(await store.replay({ handler: 'another' })).toBe(0);
    expect(await store.replay({ handler: 'notify' })).toBe(1);
    const [again] = await store.dueHeads(allSlots, 10);
    expect(again).toMatchObject({ attempts: 0, event: { id: events[0]!.id } });
    await store.endAttempt(again!, { kind: 'dead', error: 'poison' });
    expect(await store.skip({ eventId: events[0]!.id })).toBe(1);
    expect(await store.dueHeads(allSlots, 10)).toMatchObject([{ event: { id: events[1]!.id } }]);
  });

  it('are not touched under a lease that was lost', async () => {
    const { store, events, park } = await withEvents('a', 1);
    const stale = { event: events[0]!, token: '0' };
    expect(await park(stale)).toEqual([events[0]!.slot]);
    expect(await store.parkedModels(allSlots)).toEqual([]);
    await park({ event: events[0]! });
    const [head] = await store.dueHeads(allSlots, 10);
    const lost = { ...head!, token: '0' };
    expect(await store.beginAttempt(lost)).toBe(false);
    expect(await store.endAttempt(lost, { kind: 'done' })).toBe(false);
    expect(await store.dueHeads(allSlots, 10)).toHaveLength(1);
  });

  it('wait while their handler is paused', async () => {
    const { store, events, park } = await withEvents('a', 1);
    await park({ event: events[0]! });
    await store.setPaused('notify', true);
    expect(await store.dueHeads(allSlots, 10)).toEqual([]);
    await store.setPaused('notify', false);
    expect(await store.dueHeads(allSlots, 10)).toHaveLength(1);
  });

  it('are found in pages, the oldest first', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3, 4, 5);
    for (const event of events) await park({ event });
    const found: string[] = [];
    let after: string | undefined;
    do {
      const page = await store.findParked(
        { modelId: 'a' },
        { limit: 2, ...(after !== undefined && { after }) },
      );
      found.push(...page.items.map(({ event }) => event.id));
      after = page.next;
    } while (after !== undefined);
    expect(found).toEqual(events.map(({ id }) => id));
    await expect(store.findParked({}, { limit: 1, after: 'x' })).rejects.toMatchObject({
      code: 'invalid-cursor',
    });
  });
});

describe('operators', () => {
  it('see how far a handler is behind, and where an event stands', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3);
    expect(await store.lag()).toMatchObject([
      { handler: 'notify', pendingCount: 3, parkedCount: 0, deadCount: 0 },
    ]);
    expect(await store.findEvent(events[1]!.id)).toEqual(events[1]);
    expect(await store.hasPassed('notify', events[1]!)).toBe(false);

    const { next } = await store.read(allSlots, beginning, 10);
    const leases = await store.renewLeases('one', never);
    await store.saveCursors(
      leases.map(({ slot, token }) => ({ handler: 'notify', slot, token, cursor: next })),
    );
    await park({ event: events[0]!, dead: true, error: 'poison' });
    expect(await store.lag()).toEqual([
      { handler: 'notify', paused: false, pendingCount: 0, oldestPendingMs: 0, parkedCount: 1, deadCount: 1 },
    ]);
    expect(await store.hasPassed('notify', events[1]!)).toBe(true);
    expect(await store.findEvent('00000000-0000-7000-8000-000000000000')).toBeUndefined();
  });
});

async function withEvents(
  modelId: string,
  ...versions: readonly number[]
): Promise<{
  readonly store: DeliveryStore;
  readonly events: readonly DeliverableEvent[];
  readonly park: (
    ...events: readonly (Partial<ParkedEvent> & { event: DeliverableEvent })[]
  ) => Promise<readonly number[]>;
}> {
  const { store, url } = await openStore();
  await store.register([{ name: 'notify', aliases: [], startFrom: 'beginning' }]);
  await (await EventWriter.connect(url)).write(modelId, ...versions);
  const { events } = await store.read(allSlots, beginning, 100);
  const tokens = new Map((await store.renewLeases('one', never)).map(({ slot, token }) => [slot, token]));
  const fresh = {
    handler: 'notify',
    attempts: 0,
    error: undefined,
    retryAfterMs: undefined,
    dead: false,
    suspect: false,
  };
  const park = (
    ...given: readonly (Partial<ParkedEvent> & { event: DeliverableEvent })[]
  ): Promise<readonly number[]> =>
    store.park(given.map((each) => ({ ...fresh, token: tokens.get(each.event.slot) ?? '0', ...each })));
  return { store, events, park };
}

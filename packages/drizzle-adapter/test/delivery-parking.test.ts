import type { DeliverableEvent, DeliveryStore, ParkedEvent } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { allSlots, beginning, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';

const never = 1e9;
const nobody = '00000000-0000-4000-8000-000000000000';
const everywhere = allSlots.map((slot) => ({ handler: 'notify', slot }));

describe('parked events', () => {
  it('come up one at a time for each model, in the order of versions, when they are due', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3);
    const [first, second, third] = events;
    await park({ event: third! }, { event: second! });
    await park({ event: first!, attempts: 1, error: 'boom', retryAfterMs: never });
    expect(await store.parked.dueHeads(everywhere, 10)).toEqual([]);
    expect(await store.parked.nextDueMs(everywhere)).toBeGreaterThan(never - 60_000);
    expect(await store.parked.models(everywhere)).toMatchObject([
      { handler: 'notify', modelId: 'a', modelName: 'Thing' },
    ]);

    await park({ event: first!, attempts: 9 });
    const [row] = (await store.deadLetters.find({ eventId: first!.id }, { limit: 1 })).items;
    expect(row).toMatchObject({ attempts: 1, error: 'boom', dead: false });
  });

  it('are counted before the attempt, and gone when it succeeds', async () => {
    const { store, events, park } = await withEvents('a', 1, 2);
    await park(...events.map((event) => ({ event })));
    for (const event of events) {
      const [head, another] = await store.parked.dueHeads(everywhere, 10);
      expect(head).toMatchObject({ handler: 'notify', attempts: 0, suspect: false });
      expect(asJson(head!.event)).toEqual(asJson(event));
      expect(another).toBeUndefined();
      expect(await store.parked.beginAttempt(head!)).toBe(true);
      expect((await store.deadLetters.find({}, { limit: 1 })).items[0]).toMatchObject({ attempts: 1 });
      expect(await store.parked.endAttempt(head!, { kind: 'done' })).toBe(true);
    }
    expect(await store.parked.models(everywhere)).toEqual([]);
    expect(await store.parked.nextDueMs(everywhere)).toBeUndefined();
  });

  it('become dead letters, which hold back their model until they are replayed or skipped', async () => {
    const { store, events, park } = await withEvents('a', 1, 2);
    await park(...events.map((event) => ({ event })));
    const [head] = await store.parked.dueHeads(everywhere, 10);
    await store.parked.beginAttempt(head!);
    await store.parked.endAttempt(head!, { kind: 'dead', error: 'poison' });
    expect(await store.parked.dueHeads(everywhere, 10)).toEqual([]);
    expect((await store.deadLetters.find({ dead: true }, { limit: 10 })).items).toMatchObject([
      { error: 'poison', attempts: 1 },
    ]);

    expect(await store.deadLetters.replay({ handler: 'another' })).toBe(0);
    expect(await store.deadLetters.replay({ handler: 'notify' })).toBe(1);
    const [again] = await store.parked.dueHeads(everywhere, 10);
    expect(again).toMatchObject({ attempts: 0, event: { id: events[0]!.id } });
    await store.parked.endAttempt(again!, { kind: 'dead', error: 'poison' });
    expect(await store.deadLetters.skip({ eventId: events[0]!.id })).toBe(1);
    expect(await store.parked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: events[1]!.id } }]);
  });

  it('are not touched under a lease that was lost', async () => {
    const { store, events, park } = await withEvents('a', 1);
    const stale = { event: events[0]!, token: nobody };
    expect(await park(stale)).toEqual([nobody]);
    expect(await store.parked.models(everywhere)).toEqual([]);
    await park({ event: events[0]! });
    const [head] = await store.parked.dueHeads(everywhere, 10);
    const lost = { ...head!, token: nobody };
    expect(await store.parked.beginAttempt(lost)).toBe(false);
    expect(await store.parked.endAttempt(lost, { kind: 'done' })).toBe(false);
    expect(await store.parked.dueHeads(everywhere, 10)).toHaveLength(1);
  });

  it('wait while their handler is paused', async () => {
    const { store, events, park } = await withEvents('a', 1);
    await park({ event: events[0]! });
    await store.cursors.setPaused('notify', true);
    expect(await store.parked.dueHeads(everywhere, 10)).toEqual([]);
    await store.cursors.setPaused('notify', false);
    expect(await store.parked.dueHeads(everywhere, 10)).toHaveLength(1);
  });

  it('of a handler that is unknown here do not keep a known one from its turn', async () => {
    const { store, events, park } = await withEvents('a', 1, 2);
    const [first, second] = events;
    await park({ event: first!, handler: 'elsewhere' }, { event: second!, handler: 'elsewhere' });
    expect(await store.parked.nextDueMs(everywhere)).toBeUndefined();
    await park({ event: first! });
    expect(await store.parked.dueHeads(everywhere, 1)).toMatchObject([{ handler: 'notify' }]);
    expect(await store.parked.nextDueMs(everywhere)).toBe(0);
  });

  it('stay as they are when the end of an attempt is told twice', async () => {
    const { store, events, park } = await withEvents('a', 1, 2);
    await park(...events.map((event) => ({ event })));
    const [head] = await store.parked.dueHeads(everywhere, 10);
    expect(await store.parked.endAttempt(head!, { kind: 'done' })).toBe(true);
    expect(await store.parked.endAttempt(head!, { kind: 'done' })).toBe(true);
    expect(await store.parked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: events[1]!.id } }]);
  });

  it('are found in pages, the oldest first', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3, 4, 5);
    for (const event of events) await park({ event });
    const found: string[] = [];
    let after: string | undefined;
    do {
      const page = await store.deadLetters.find(
        { modelId: 'a' },
        { limit: 2, ...(after !== undefined && { after }) },
      );
      found.push(...page.items.map(({ event }) => event.id));
      after = page.next;
    } while (after !== undefined);
    expect(found).toEqual(events.map(({ id }) => id));
    await expect(store.deadLetters.find({}, { limit: 1, after: 'x' })).rejects.toMatchObject({
      code: 'invalid-cursor',
    });
  });
});

describe('operators', () => {
  it('see how far a handler is behind, and where an event stands', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3);
    expect(await store.cursors.lag()).toMatchObject([
      { handler: 'elsewhere', pendingCount: 3 },
      { handler: 'notify', pendingCount: 3, parkedCount: 0, deadCount: 0 },
    ]);
    expect(await store.log.find(events[1]!.id)).toEqual(events[1]);
    expect(await store.cursors.hasPassed('notify', events[1]!)).toBe(false);

    const { next } = await store.log.read(allSlots, beginning, 10);
    const { leases } = await store.leases.renew('one', ['notify'], never);
    await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })));
    await park({ event: events[0]!, dead: true, error: 'poison' });
    expect((await store.cursors.lag()).slice(1)).toEqual([
      { handler: 'notify', paused: false, pendingCount: 0, oldestPendingMs: 0, parkedCount: 1, deadCount: 1 },
    ]);
    expect(await store.cursors.hasPassed('notify', events[1]!)).toBe(true);
    expect(await store.log.find('00000000-0000-7000-8000-000000000000')).toBeUndefined();
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
  ) => Promise<readonly string[]>;
}> {
  const { store, url } = await openStore();
  await store.cursors.register(
    ['notify', 'elsewhere'].map((name) => ({ name, aliases: [], startFrom: 'beginning' })),
  );
  await (await EventWriter.connect(url)).write(modelId, ...versions);
  const { events } = await store.log.read(allSlots, beginning, 100);
  const { leases } = await store.leases.renew('one', ['notify', 'elsewhere'], never);
  const tokens = new Map(leases.map(({ handler, slot, token }) => [`${handler} ${slot}`, token]));
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
  ): Promise<readonly string[]> =>
    store.parked.park(
      given.map((each) => {
        const row = { ...fresh, ...each };
        return { ...row, token: each.token ?? tokens.get(`${row.handler} ${each.event.slot}`) ?? nobody };
      }),
    );
  return { store, events, park };
}

function asJson(event: DeliverableEvent): unknown {
  return JSON.parse(JSON.stringify(event));
}

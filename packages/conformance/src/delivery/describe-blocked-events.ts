import type { BlockedModel, DeliverableEvent, LeasedModel } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { at, firstShard } from '../suite-context.js';
import { type DeliveryContext, alone, contentOf, idsOf, never, step } from './delivery-context.js';

/** Registers tests of which events wait for a handler, and which is tried next. */
export function describeBlockedEvents(context: DeliveryContext): void {
  test('Blocked events are returned one at a time for each model, in the order of versions, when they are due', async () => {
    const events = await context.holdWith('a', 1, 2, 3);
    const [first, second, third] = events;
    await context.block({ event: third }, { event: second });
    await context.block({ event: first, attempts: 1, error: 'boom', retryAfterMs: never });
    expect(await context.heads()).toEqual([]);
    expect(await context.store.blocked.nextDueMs(context.places())).toBeGreaterThan(never - 60_000);
    expect(await context.store.blocked.models(context.places(), { limit: 10 })).toMatchObject([
      { handler: 'notify', modelId: 'a', modelName: 'Thing' },
    ]);

    await context.block({ event: first, attempts: 9 });
    const row = await context.row({ eventId: first.id });
    expect(row).toMatchObject({ attempts: 1, error: 'boom', dead: false });
  });

  test('The event that has been due for longer comes first, and is a suspect until an attempt at it has ended', async () => {
    const [first] = await context.holdWith('a', 1);
    await context.write('b', 1);
    const suspect = at(await context.logged(), 1);
    await context.block({ event: first });
    await context.block({ event: suspect, suspect: true, retryAfterMs: -never });
    const head = await context.head();
    expect(head).toMatchObject({ event: { id: suspect.id }, suspect: true });
    await context.store.blocked.beginAttempt(head, alone('first'));
    expect(await context.heads(1)).toMatchObject([{ suspect: true }]);
    const outcome = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    await context.store.blocked.endAttempt(head, undefined, { ...outcome, retryAfterMs: -never });
    await context.store.blocked.endAttempt(head, alone('first'), outcome);
    expect(await context.heads()).toMatchObject([
      { event: { id: first.id } },
      { event: { id: suspect.id }, suspect: false },
    ]);
  });

  test('A dead letter blocks its model until it is replayed or skipped', async () => {
    const events = await context.holdWith('a', 1, 2);
    await context.block(...events.map((event) => ({ event })));
    const head = await context.head();
    await context.store.blocked.beginAttempt(head, alone('first'));
    await context.store.blocked.endAttempt(head, alone('first'), { kind: 'dead', error: 'poison' });
    expect(await context.heads()).toEqual([]);
    expect(await context.rows({ dead: true })).toMatchObject([{ error: 'poison', attempts: 1 }]);

    expect((await context.store.deadLetters.replay({ handler: 'another' }, step)).count).toBe(0);
    expect((await context.store.deadLetters.replay({ handler: 'notify' }, step)).count).toBe(1);
    const again = await context.head();
    expect(again).toMatchObject({ attempts: 0, event: { id: events[0].id } });
    await context.store.blocked.endAttempt(again, undefined, { kind: 'dead', error: 'poison' });
    expect((await context.store.deadLetters.skip({ eventId: events[0].id }, step)).count).toBe(1);
    expect(await context.heads()).toMatchObject([{ event: { id: events[1].id } }]);
  });

  test('Operators find the first blocked event of a model, in the order of versions', async () => {
    const [first, second, third] = await context.holdWith('a', 1, 2, 3);
    await context.block({ event: third }, { event: second }, { event: first, handler: 'elsewhere' });
    const { slot, modelName, modelId } = first;
    const { deadLetters } = context.store;
    const firstOf = async (handler: string): Promise<string | undefined> =>
      (await deadLetters.firstOf({ slot, handler, modelName, modelId }))?.event.id;
    expect(await firstOf('notify')).toBe(second.id);
    expect(await firstOf('nobody')).toBeUndefined();
    await context.block({ event: first });
    expect(await firstOf('notify')).toBe(first.id);
    const ofOther = { slot, handler: 'notify', modelName: 'Other', modelId };
    expect(await deadLetters.firstOf(ofOther)).toBeUndefined();
  });

  test('The events of one handler do not crowd out those of another one, and each has its own limit', async () => {
    await context.holdWith('a', 1);
    for (const id of ['b', 'c', 'd']) await context.write(id, 1);
    const events = await context.logged();
    await context.block(...events.map((event) => ({ event, retryAfterMs: -60_000 })));
    await context.block(...events.map((event) => ({ event, handler: 'elsewhere' })));
    const places = ['notify', 'elsewhere'].flatMap((handler) =>
      context.slots.map((slot) => ({ handler, slot })),
    );
    const asked = async (
      ...of: Parameters<typeof context.store.blocked.dueHeads>
    ): Promise<readonly string[]> =>
      (await context.store.blocked.dueHeads(...of)).map(({ handler }) => handler);
    expect(await asked(places, 2)).toEqual(['notify', 'notify', 'elsewhere', 'elsewhere']);
    const few = places.map((place) => ({ ...place, headsMax: place.handler === 'notify' ? 1 : 3 }));
    expect(await asked(few, 2)).toEqual(['notify', 'elsewhere', 'elsewhere']);
    expect(await asked(few, 10)).toEqual(['notify', ...Array<string>(3).fill('elsewhere')]);
  });

  test('An event is left out while it is being tried, but only for its own handler and model', async () => {
    await context.holdWith('a "1"', 1);
    await context.write('b', 1);
    const events = await context.logged();
    const places = ['notify', 'elsewhere'].flatMap((handler) =>
      context.slots.map((slot) => ({ handler, slot })),
    );
    await context.block(...events.map((event) => ({ event })));
    await context.block(...events.map((event) => ({ event, handler: 'elsewhere' })));
    const [{ slot, modelName, modelId }] = events as [DeliverableEvent];
    const except = [{ handler: 'notify', slot, modelName, modelId }];
    const heads = await context.store.blocked.dueHeads(places, 10, { except });
    expect(heads.map(({ handler, event }) => `${handler} ${event.modelId}`).toSorted()).toEqual([
      'elsewhere a "1"',
      'elsewhere b',
      'notify b',
    ]);
  });

  test('A suspect is visible in its slot, even while the handler is paused, until an attempt has ended', async () => {
    const events = await context.holdWith('a', 1);
    const [event] = events as [DeliverableEvent];
    await context.block({ event, suspect: true, retryAfterMs: -never });
    await context.store.cursors.setPaused('notify', true);
    const place = { handler: 'notify', slot: event.slot };
    expect(await context.store.blocked.suspectPlaces(context.places())).toEqual([place]);
    const elsewhere = context.places().filter(({ slot }) => slot !== event.slot);
    expect(await context.store.blocked.suspectPlaces(elsewhere)).toEqual([]);
    await context.store.cursors.setPaused('notify', false);
    const head = await context.head();
    await context.store.blocked.beginAttempt(head, alone('first'));
    expect(await context.store.blocked.suspectPlaces(context.places())).toEqual([place]);
    const outcome = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    await context.store.blocked.endAttempt(head, alone('first'), outcome);
    expect(await context.store.blocked.suspectPlaces(context.places())).toEqual([]);
  });

  test('A waiting event is skipped only on explicit request, and the events behind it continue', async () => {
    const events = await context.holdWith('a', 1, 2);
    const [first, second] = events;
    await context.block({ event: first, attempts: 1, retryAfterMs: never }, { event: second });
    const { id: eventId } = first;
    expect((await context.store.deadLetters.skip({ eventId }, step)).count).toBe(0);
    expect((await context.store.deadLetters.skip({ eventId, dead: true }, step)).count).toBe(0);
    expect((await context.store.deadLetters.replay({ eventId, dead: false }, step)).count).toBe(0);
    expect(await context.heads()).toEqual([]);
    expect((await context.store.deadLetters.skip({ eventId, dead: false }, step)).count).toBe(1);
    expect(await context.heads()).toMatchObject([{ event: { id: second.id } }]);
  });

  test('Nothing is blocked, tried or ended under a lost lease', async () => {
    const events = await context.holdWith('a', 1);
    const stale = { event: events[0], token: context.lostToken };
    expect(await context.block(stale)).toEqual([context.lostToken]);
    expect(await context.store.blocked.models(context.places(), { limit: 10 })).toEqual([]);
    await context.block({ event: events[0] });
    const head = await context.head();
    const lost = { ...head, token: context.lostToken };
    expect(await context.store.blocked.beginAttempt(lost, alone('first'))).toBe(false);
    for (const kind of ['done', 'retry', 'postponed', 'dead'] as const) {
      const outcome = { kind, error: 'stale', retryAfterMs: never };
      expect(await context.store.blocked.endAttempt(lost, alone('first'), outcome)).toBe(false);
    }
    expect(await context.heads()).toHaveLength(1);
  });

  test('Blocked events wait while their handler is paused', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    await context.store.cursors.setPaused('notify', true);
    expect(await context.heads()).toEqual([]);
    await context.store.cursors.setPaused('notify', false);
    expect(await context.heads()).toHaveLength(1);
  });

  test('An event is never due while its handler is paused or when it is a dead letter', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    expect(await context.store.blocked.nextDueMs(context.places())).toBe(0);
    await context.store.cursors.setPaused('notify', true);
    expect(await context.store.blocked.nextDueMs(context.places())).toBeUndefined();
    await context.store.cursors.setPaused('notify', false);
    const head = await context.head();
    await context.store.blocked.endAttempt(head, undefined, { kind: 'dead', error: 'poison' });
    expect(await context.store.blocked.nextDueMs(context.places())).toBeUndefined();
  });

  test('An event counts as a suspect in its slot only when it is due and the first of its model', async () => {
    await context.holdWith('later', 1);
    await context.write('behind', 1, 2);
    const events = await context.logged();
    const [later, first, second] = [at(events, 0), at(events, 1), at(events, 2)];
    await context.block({ event: later, suspect: true, retryAfterMs: never });
    await context.block({ event: first }, { event: second, suspect: true });
    expect(await context.store.blocked.suspectPlaces(context.places())).toEqual([]);
    const head = await context.head();
    await context.store.blocked.endAttempt(head, undefined, { kind: 'done' });
    expect(await context.store.blocked.suspectPlaces(context.places())).toEqual([
      { handler: 'notify', slot: second.slot },
    ]);
  });

  test('The events of a handler that was not asked for do not hold up those of another one', async () => {
    const events = await context.holdWith('a', 1, 2);
    const [first, second] = events;
    await context.block({ event: first, handler: 'elsewhere' }, { event: second, handler: 'elsewhere' });
    expect(await context.store.blocked.nextDueMs(context.places())).toBeUndefined();
    await context.block({ event: first });
    expect(await context.heads(1)).toMatchObject([{ handler: 'notify' }]);
    expect(await context.store.blocked.nextDueMs(context.places())).toBe(0);
  });

  test('An event is blocked with its contents from the log, however little of them the caller passes', async () => {
    const [event] = await context.holdWith('a', 1);
    await context.block({ event: { ...contentOf(event), payload: undefined, actionParams: undefined } });
    const row = await context.row();
    expect(contentOf(row.event)).toEqual(contentOf(event));
  });

  test('An event can be blocked even if the log has lost it', async () => {
    const events = await context.holdWith('a', 1, 2);
    await context.fixture.emptyLog();
    await context.block(...events.map((event) => ({ event })));
    const rows = (await context.rows()).toSorted(
      (one, other) => one.event.modelVersion - other.event.modelVersion,
    );
    expect(rows.map(({ event }) => contentOf(event))).toEqual(events.map(contentOf));
  });

  test('Models with blocked events are read in pages of limited size, and only those that are asked for', async () => {
    await context.holdWith('a', 1);
    for (const model of ['b', 'c', 'd', 'e']) await context.write(model, 1);
    await context.block(...(await context.logged()).map((event) => ({ event })));
    const found: BlockedModel[] = [];
    for (let after: BlockedModel | undefined, pages = 1; pages <= 3; pages++, after = found.at(-1)) {
      const page = await context.store.blocked.models(context.places(), { limit: 2, after });
      expect(page).toHaveLength(pages < 3 ? 2 : 1);
      found.push(...page);
    }
    expect(found.map(({ modelId }) => modelId).toSorted()).toEqual(['a', 'b', 'c', 'd', 'e']);

    const [one, other] = [at(found, 0), at(found, 1)];
    const absent = { ...one, modelName: 'Another' };
    const leased = (model: BlockedModel): LeasedModel => ({
      ...model,
      token: context.token(model.handler, model.slot),
    });
    expect(await context.store.blocked.stillBlocked([other, absent, one].map(leased))).toHaveLength(2);
    for (const difference of [
      { modelName: 'Another' },
      { modelId: 'f' },
      { handler: 'elsewhere' },
      { slot: (one.slot + 1) % context.store.slotCount },
    ])
      expect(await context.store.blocked.stillBlocked([leased({ ...one, ...difference })])).toEqual([]);
    // A model counts as still blocked when the caller no longer holds its slot.
    const lost = { ...absent, token: context.lostToken };
    expect(await context.store.blocked.stillBlocked([lost])).toEqual([absent]);
  });

  test('An event may be delivered again until the cursor has passed it and it is not blocked', async () => {
    const events = await context.holdWith('a', 1, 2);
    const asked = events.map(({ id }) => ({ handler: 'notify', eventId: id, shard: firstShard }));
    const ofNobody = { handler: 'retired', eventId: events[0].id, shard: firstShard };
    const again = async (): Promise<readonly string[]> =>
      (await context.store.blocked.mayComeAgain([...asked, ofNobody])).map(({ eventId }) => eventId);
    expect(await again()).toEqual(idsOf(events));

    const { cursor } = await context.readOn(await context.beginning());
    const leases = (await context.store.leases.renew('one', ['notify', 'elsewhere'], never)).leases;
    await context.store.cursors.save(leases.map((lease) => ({ ...lease, cursor })));
    expect(await again()).toEqual([]);
    await context.block({ event: events[0], dead: true });
    expect(await again()).toEqual([events[0].id]);
  });
}

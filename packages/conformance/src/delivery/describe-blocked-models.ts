import {
  type BlockedModel,
  type DeliverableEvent,
  type DuePlace,
  positionAfter,
} from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { at, firstShard } from '../suite-context.js';
import { type DeliveryContext, alone, contentOf, idsOf, modelOf, never, step } from './delivery-context.js';

/** Registers tests of how models are blocked, read and moved. */
export function describeBlockedModels(context: DeliveryContext): void {
  /** The versions that wait in the model `a`, or nothing when it is not blocked. */
  const waiting = async (event: DeliverableEvent): Promise<readonly number[]> => {
    const row = await context.store.deadLetters.headOf(modelOf(event));
    if (row === undefined) return [];
    const { modelName, modelId, modelVersion, ordinal, slot } = row.event;
    const leased = { handler: 'notify', slot, token: context.token('notify', slot) };
    const model = { ...leased, modelName, modelId, position: { modelVersion, ordinal } };
    return at(await context.store.blocked.read([model], 100), 0).map((each) => each.modelVersion);
  };

  test('A model is blocked at the event that has failed, and the events behind it stay in the log', async () => {
    const [first, second, third] = await context.holdWith('a', 1, 2, 3);
    const failure = { attempts: 2, uncounted: 3, error: 'no', retryAfterMs: never };
    expect(await context.fail({ event: second, ...failure })).toEqual([]);
    const { retryAfterMs: _retryAfterMs, ...state } = failure;
    expect(await context.rows()).toMatchObject([{ ...state, handler: 'notify', dead: false }]);
    expect(contentOf((await context.row()).event)).toEqual(contentOf(second));
    expect(await waiting(first)).toEqual([2, 3]);
    expect(await context.store.blocked.models(context.places(), { limit: 10 })).toEqual([
      { ...modelOf(third), hasFailed: true },
    ]);
  });

  test('A blocked model moves forward to a later event that fails, with the state of that one only, and never back', async () => {
    const [first, second] = await context.holdWith('a', 1, 2);
    await context.fail({ event: first, attempts: 4, uncounted: 5, error: 'old', doneIds: [second.id] });
    const head = await context.head();
    expect(head.doneIds).toEqual([second.id]);
    await context.begin(head, alone('first'));
    await context.fail({ event: second, attempts: 1, error: 'new' });
    const moved = await context.head();
    expect(moved).toMatchObject({ attempts: 1, uncounted: 0, openCount: 0, doneIds: [], hasFailed: true });
    expect(moved.event?.id).toBe(second.id);
    await context.fail({ event: first, attempts: 9, dead: true });
    expect(await context.rows()).toMatchObject([{ error: 'new', attempts: 1, dead: false }]);
  });

  test('Events of several models fail at once, each for its own handler', async () => {
    await context.holdWith('a', 1);
    await context.write('b', 1);
    const events = await context.logged();
    await context.fail(
      ...events.map((event) => ({ event })),
      ...events.map((event) => ({ event, handler: 'elsewhere', dead: true })),
    );
    const rows = (await context.rows()).map(
      ({ handler, event, dead }) => `${handler} ${event.modelId} ${dead}`,
    );
    expect(rows.toSorted()).toEqual([
      'elsewhere a true',
      'elsewhere b true',
      'notify a false',
      'notify b false',
    ]);
    expect(await context.fail()).toEqual([]);
  });

  test('Models are held at untried events, before all others, and stay as they are when they are blocked already', async () => {
    const [first, second] = await context.holdWith('a', 1, 2);
    await context.write('b', 1, 2);
    const ofB = at(await context.logged(), 2);
    await context.fail({ event: ofB, retryAfterMs: -never, error: 'no' });
    expect(await context.hold(second, at(await context.logged(), 3))).toEqual([]);
    await context.hold(first);
    const heads = await context.heads();
    expect(heads).toMatchObject([
      { modelId: 'a', hasFailed: false, attempts: 0, uncounted: 0, openCount: 0, doneIds: [] },
      { modelId: 'b', hasFailed: true, event: { id: ofB.id } },
    ]);
    expect(at(heads, 0).event?.id).toBe(second.id);
    expect(await context.store.blocked.models(context.places(), { limit: 10 })).toEqual(
      expect.arrayContaining([
        { ...modelOf(first), hasFailed: false },
        { ...modelOf(ofB), hasFailed: true },
      ]),
    );
    expect(await context.hold()).toEqual([]);
  });

  test('Blocked models are read in pages of limited size, and only those that are asked for', async () => {
    await context.holdWith('a', 1);
    for (const model of ['b', 'c', 'd', 'e']) await context.write(model, 1);
    const events = await context.logged();
    await context.fail(...events.map((event) => ({ event })));
    await context.fail({ event: at(events, 0), handler: 'elsewhere' });
    const found: BlockedModel[] = [];
    for (let after: BlockedModel | undefined, pages = 1; pages <= 3; pages++, after = found.at(-1)) {
      const page = await context.store.blocked.models(context.places(), { limit: 2, after });
      expect(page).toHaveLength(pages < 3 ? 2 : 1);
      found.push(...page);
    }
    expect(found.map(({ handler, modelId }) => `${handler} ${modelId}`).toSorted()).toEqual(
      ['a', 'b', 'c', 'd', 'e'].map((id) => `notify ${id}`),
    );
    const others = context.places().filter(({ slot }) => slot !== at(events, 0).slot);
    const ofOthers = await context.store.blocked.models(others, { limit: 10 });
    expect(idsOf(ofOthers.map(({ modelId: id }) => ({ id })))).not.toContain('a');
  });

  test('The events of blocked models are read from a position on, by version and ordinal, up to a limit for each model', async () => {
    await context.holdAll();
    const leased = { handler: 'notify', slot: 0, token: context.token('notify', 0) };
    // Not written in the order of the model.
    await context.writeAtOnce(versioned('a', 2, 1), versioned('a', 2, 0), versioned('a', 1, 2));
    await context.writeAtOnce({ ...versioned('a', 3, 0), modelName: 'Other' }, versioned('b', 1, 1));
    await context.writeAtOnce(versioned('a', 10, 0), versioned('a', 9, 1));
    const read = async (
      limit: number,
      modelVersion: number,
      ordinal: number,
    ): Promise<readonly unknown[]> => {
      const position = { modelVersion, ordinal };
      const [none, ofA, ofB, lost] = await context.store.blocked.read(
        [
          ...['none', 'a', 'b'].map((modelId) => ({ ...leased, modelName: 'Thing', modelId, position })),
          { ...leased, token: context.lostToken, modelName: 'Thing', modelId: 'a', position },
        ],
        limit,
      );
      expect(lost).toEqual([]);
      expect(none).toEqual([]);
      expect(ofB).toHaveLength(modelVersion === 1 ? 1 : 0);
      return (ofA ?? []).map((event) => [event.modelVersion, event.ordinal]);
    };
    const all = [
      [1, 2],
      [2, 0],
      [2, 1],
      [9, 1],
      [10, 0],
    ];
    expect(await read(10, 1, 0)).toEqual(all);
    expect(await read(2, 1, 1)).toEqual(all.slice(0, 2));
    expect(await read(10, 2, 0)).toEqual(all.slice(1));
    expect(await read(10, 2, 1)).toEqual(all.slice(2));
    expect(await read(1, 2, 2)).toEqual(all.slice(3, 4));
    expect(await read(10, 10, 1)).toEqual([]);
    expect(await context.store.blocked.read([], 10)).toEqual([]);
    const [events] = await context.store.blocked.read(
      [{ ...leased, modelName: 'Thing', modelId: 'b', position: { modelVersion: 1, ordinal: 0 } }],
      1,
    );
    const logged = (await context.logged()).filter(({ modelId }) => modelId === 'b');
    expect(events?.map(contentOf)).toEqual(logged.map(contentOf));
  });

  test('A blocked model moves forward only, and its new head is untried and due at once', async () => {
    const [first, second, third] = await context.holdWith('a', 1, 2, 3);
    await context.fail({ event: first, attempts: 3, uncounted: 2, error: 'no', doneIds: [third.id] });
    await context.begin(await context.head(), alone('first'));
    expect(await context.move(first, positionAfter(first))).toEqual([]);
    expect(await context.head()).toMatchObject({
      position: positionAfter(first),
      hasFailed: false,
      attempts: 0,
      uncounted: 0,
      openCount: 0,
      doneIds: [third.id],
      event: { id: second.id },
    });
    await context.move(first, third);
    expect(await waiting(first)).toEqual([3]);
    // Late moves, an end among them, change nothing.
    await context.move(first, second);
    await context.move(first, second, { ends: true });
    expect(await waiting(first)).toEqual([3]);
    await context.fail({ event: third, error: 'third' });
    await context.move(first, third);
    expect(await context.rows()).toMatchObject([{ error: 'third', attempts: 1 }]);
  });

  test('A model is not blocked any more once it has ended, beyond a failed event, or where nothing has failed', async () => {
    const [first, second] = await context.holdWith('a', 1, 2);
    const blocked = (): Promise<readonly unknown[]> =>
      context.store.blocked.models(context.places(), { limit: 10 });
    await context.fail({ event: first, dead: true });
    // A late end, of a time before the event failed.
    expect(await context.move(first, first, { ends: true })).toEqual([]);
    expect(await blocked()).toHaveLength(1);
    expect(await context.move(first, second, { ends: true })).toEqual([]);
    expect(await blocked()).toEqual([]);
    await context.fail({ event: first });
    await context.move(first, second);
    expect(await context.move(first, second, { ends: true })).toEqual([]);
    expect(await blocked()).toEqual([]);
    expect(await context.move(first, second, { ends: true })).toEqual([]);
    expect(await context.move(first, second)).toEqual([]);
    expect(await context.store.blocked.models(context.places(), { limit: 10 })).toEqual([]);
    expect(await context.store.blocked.move([])).toEqual([]);
  });

  test('A failure of a head that is not blocked any more blocks nothing', async () => {
    const [event] = await context.holdWith('a', 1);
    for (const state of [{ attempt: alone('late') }, { before: { attempts: 0, uncounted: 0 } }])
      expect(await context.fail({ event, ...state })).toEqual([]);
    expect(await context.store.blocked.models(context.places(), { limit: 10 })).toEqual([]);
  });

  test('Nothing is written under a lease that is lost, which the answer says', async () => {
    const [first, second] = await context.holdWith('a', 1, 2);
    await context.write('b', 1);
    const ofB = at(await context.logged(), 2);
    const token = context.lostToken;
    expect(await context.fail({ event: first, token }, { event: ofB })).toEqual([token]);
    expect(await context.store.blocked.hold([{ handler: 'notify', token, event: first }])).toEqual([token]);
    expect(await context.rows()).toMatchObject([{ event: { modelId: 'b' } }]);
    await context.fail({ event: first, error: 'kept' });
    expect(await context.fail({ event: second, token })).toEqual([token]);
    expect(await context.move(first, second, { token })).toEqual([token]);
    expect(await context.move(first, second, { token, ends: true })).toEqual([token]);
    expect(await context.rows({ modelId: 'a' })).toMatchObject([{ error: 'kept', event: { id: first.id } }]);
    // The lease of another handler does not count either.
    const ofElsewhere = context.token('elsewhere', first.slot);
    expect(await context.move(first, second, { token: ofElsewhere })).toEqual([ofElsewhere]);
    expect(await waiting(first)).toEqual([1, 2]);
  });

  test('An event may be delivered again until the cursor has passed it and it does not wait in a blocked model', async () => {
    const events = await context.holdWith('a', 1, 2, 3, 4);
    const [first, second, third] = events;
    const asked = events.map(({ id }) => ({ handler: 'notify', eventId: id, shard: firstShard }));
    const ofNobody = { handler: 'retired', eventId: first.id, shard: firstShard };
    const again = async (): Promise<readonly string[]> =>
      (await context.store.blocked.mayComeAgain([...asked, ofNobody])).map(({ eventId }) => eventId);
    expect(await again()).toEqual(idsOf(events));

    const { cursor } = await context.readOn(await context.beginning());
    const leases = (await context.store.leases.renew('one', ['notify', 'elsewhere'], never)).leases;
    await context.store.cursors.save(leases.map((lease) => ({ ...lease, cursor })));
    expect(await again()).toEqual([]);
    await context.fail({ event: second, dead: true, doneIds: [third.id] });
    expect(await again()).toEqual([second.id, events[3].id]);
    await context.store.deadLetters.skip({}, step);
    expect(await again()).toEqual([events[3].id]);
  });
}

/** Registers tests of which blocked models are due. */
export function describeDueModels(context: DeliveryContext): void {
  /** All slots of both handlers. */
  const everywhere = (): readonly DuePlace[] =>
    ['notify', 'elsewhere'].flatMap((handler) => context.places(handler));
  const due = async (
    ...asked: Parameters<typeof context.store.blocked.dueHeads>
  ): Promise<readonly string[]> =>
    (await context.store.blocked.dueHeads(...asked)).map(({ handler, modelId }) => `${handler} ${modelId}`);

  test('A head comes with the first event of its model, its state and the lease of its slot', async () => {
    const [event] = await context.holdWith('a', 1);
    await context.fail({ event, attempts: 2, uncounted: 1 });
    const head = await context.head();
    expect(head).toMatchObject({
      ...modelOf(event),
      token: context.token('notify', event.slot),
      hasFailed: true,
      attempts: 2,
      uncounted: 1,
      openCount: 0,
      doneIds: [],
      position: { modelVersion: event.modelVersion, ordinal: event.ordinal },
    });
    expect(head.event && contentOf(head.event)).toEqual(contentOf(event));
    await context.begin(head, alone('first'));
    await context.store.leases.release('one');
    await context.holdAll();
    const next = await context.head();
    expect(next).toMatchObject({ token: context.token('notify', event.slot), attempts: 3, openCount: 1 });
    expect(next.token).not.toBe(head.token);
  });

  test('A model that only has to be read on is due with its next event or none', async () => {
    const [first, second] = await context.holdWith('a', 1, 2);
    await context.hold(first);
    expect(await context.head()).toMatchObject({ hasFailed: false, openCount: 0, event: { id: first.id } });
    await context.move(first, positionAfter(first));
    expect(await context.head()).toMatchObject({ hasFailed: false, openCount: 0, event: { id: second.id } });
    await context.move(first, positionAfter(second));
    const head = await context.head();
    expect(head).toMatchObject({ position: positionAfter(second), hasFailed: false, openCount: 0 });
    expect(head.event).toBeUndefined();
    expect(await context.rows()).toEqual([]);
    expect(await context.store.deadLetters.headOf(modelOf(first))).toBeUndefined();
    await context.write('a', 3);
    expect(await context.head()).toMatchObject({ hasFailed: false, event: { modelVersion: 3 } });
  });

  test('A model is due when the wait after its failure is over, and the one that has been due longest comes first', async () => {
    await context.holdWith('a', 1);
    for (const id of ['b', 'c']) await context.write(id, 1);
    const events = await context.logged();
    for (const [index, waitMs] of [60_000, never, 1_000].entries())
      await context.fail({ event: at(events, index), retryAfterMs: waitMs });
    expect(await context.heads()).toEqual([]);
    expect(await context.store.blocked.nextDueMs(context.places())).toBeGreaterThan(0);
    expect(await context.store.blocked.nextDueMs(context.places())).toBeLessThanOrEqual(1_000);
    await context.fixture.pass(60_001);
    expect(await due(context.places(), 10)).toEqual(['notify c', 'notify a']);
    expect(await due(context.places(), 1)).toEqual(['notify c']);
    expect(await context.store.blocked.nextDueMs(context.places())).toBe(0);
    for (const event of events) await context.move(event, positionAfter(event), { ends: true });
    expect(await context.store.blocked.nextDueMs(context.places())).toBeUndefined();
  });

  test('A model that would wait for longer than the longest wait is due, because the clock of the database has gone back', async () => {
    const [event] = await context.holdWith('a', 1);
    await context.fail({ event, retryAfterMs: 3_600_000 });
    const waiting = (waitMaxMs: number): readonly DuePlace[] =>
      context.places().map((place) => ({ ...place, waitMaxMs }));
    expect(await due(waiting(3_600_000), 10)).toEqual([]);
    expect(await due(waiting(300_000), 10)).toEqual(['notify a']);
    expect(await due(context.places(), 10)).toEqual([]);
  });

  test('As many due models are returned as are asked for, even if all are in one of many slots', async () => {
    await context.holdAll();
    const written = Array.from({ length: 100 }, (_, index) => ({ modelId: `m${index}`, modelVersion: 1 }));
    await context.writeAtOnce(...written);
    const events = await context.logged();
    const inOneSlot = events.filter(({ slot }) => slot === at(events, 0).slot);
    expect(inOneSlot.length).toBeGreaterThan(1);
    await context.fail(...inOneSlot.map((event) => ({ event })));
    expect(await due(context.places(), inOneSlot.length)).toHaveLength(inOneSlot.length);
  });

  test('The models of one handler do not crowd out those of another one, and each has its own limit', async () => {
    await context.holdWith('a', 1);
    for (const id of ['b', 'c', 'd']) await context.write(id, 1);
    const events = await context.logged();
    await context.fail(...events.map((event) => ({ event, retryAfterMs: -60_000 })));
    await context.fail(...events.map((event) => ({ event, handler: 'elsewhere' })));
    const handlers = async (places: readonly DuePlace[], limit: number): Promise<readonly string[]> =>
      (await context.store.blocked.dueHeads(places, limit)).map(({ handler }) => handler);
    const places = everywhere();
    expect(await handlers(places, 2)).toEqual(['notify', 'notify', 'elsewhere', 'elsewhere']);
    const few = places.map((place) => ({ ...place, headsMax: place.handler === 'notify' ? 1 : 3 }));
    expect(await handlers(few, 2)).toEqual(['notify', 'elsewhere', 'elsewhere']);
    expect(await handlers(few, 10)).toEqual(['notify', ...Array<string>(3).fill('elsewhere')]);
  });

  test('A model is left out while it is being worked on, but only for its own handler', async () => {
    await context.holdWith('a "1"', 1);
    await context.write('b', 1);
    const events = await context.logged();
    await context.fail(...events.map((event) => ({ event })));
    await context.fail(...events.map((event) => ({ event, handler: 'elsewhere' })));
    const except = [modelOf(at(events, 0))];
    expect((await due(everywhere(), 10, { except })).toSorted()).toEqual([
      'elsewhere a "1"',
      'elsewhere b',
      'notify b',
    ]);
  });

  test('The models of a paused handler, of other places and of dead letters are not due', async () => {
    await context.holdWith('a', 1);
    await context.write('b', 1);
    const [ofA, ofB] = (await context.logged()) as [DeliverableEvent, DeliverableEvent];
    await context.fail({ event: ofA }, { event: ofB, dead: true });
    expect(await due(everywhere(), 10)).toEqual(['notify a']);
    expect(await due(context.places('elsewhere'), 10)).toEqual([]);
    expect(
      await due(
        context.places().filter(({ slot }) => slot !== ofA.slot),
        10,
      ),
    ).toEqual([]);
    await context.store.cursors.setPaused('notify', true);
    expect(await due(everywhere(), 10)).toEqual([]);
    expect(await context.store.blocked.nextDueMs(everywhere())).toBeUndefined();
    await context.store.cursors.setPaused('notify', false);
    expect(await context.store.blocked.nextDueMs(everywhere())).toBe(0);
    await context.move(ofA, positionAfter(ofA), { ends: true });
    expect(await context.store.blocked.nextDueMs(everywhere())).toBeUndefined();
  });
}

function versioned(modelId: string, modelVersion: number, ordinal: number) {
  return { modelId, modelVersion, ordinal };
}

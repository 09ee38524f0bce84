import type { DeliverableEvent, DeliveryStore, ParkedEvent, ParkedModel } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { allSlots, beginning, openStore } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';
import { query } from './fixtures/query.js';

const never = 1e9;
const nobody = '00000000-0000-4000-8000-000000000000';
const everywhere = allSlots.map((slot) => ({ handler: 'notify', slot }));
const step = { limit: 100 };

describe('parked events', () => {
  it('come up one at a time for each model, in the order of versions, when they are due', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3);
    const [first, second, third] = events;
    await park({ event: third! }, { event: second! });
    await park({ event: first!, attempts: 1, error: 'boom', retryAfterMs: never });
    expect(await store.parked.dueHeads(everywhere, 10)).toEqual([]);
    expect(await store.parked.nextDueMs(everywhere)).toBeGreaterThan(never - 60_000);
    expect(await store.parked.models(everywhere, { limit: 10 })).toMatchObject([
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
      expect(await store.parked.beginAttempt(head!, 'first')).toBe(true);
      expect((await store.deadLetters.find({}, { limit: 1 })).items[0]).toMatchObject({ attempts: 1 });
      expect(await store.parked.endAttempt(head!, 'first', { kind: 'done' })).toBe(true);
    }
    expect(await store.parked.models(everywhere, { limit: 10 })).toEqual([]);
    expect(await store.parked.nextDueMs(everywhere)).toBeUndefined();
  });

  it('become dead letters, which hold back their model until they are replayed or skipped', async () => {
    const { store, events, park } = await withEvents('a', 1, 2);
    await park(...events.map((event) => ({ event })));
    const [head] = await store.parked.dueHeads(everywhere, 10);
    await store.parked.beginAttempt(head!, 'first');
    await store.parked.endAttempt(head!, 'first', { kind: 'dead', error: 'poison' });
    expect(await store.parked.dueHeads(everywhere, 10)).toEqual([]);
    expect((await store.deadLetters.find({ dead: true }, { limit: 10 })).items).toMatchObject([
      { error: 'poison', attempts: 1 },
    ]);

    expect((await store.deadLetters.replay({ handler: 'another' }, step)).count).toBe(0);
    expect((await store.deadLetters.replay({ handler: 'notify' }, step)).count).toBe(1);
    const [again] = await store.parked.dueHeads(everywhere, 10);
    expect(again).toMatchObject({ attempts: 0, event: { id: events[0]!.id } });
    await store.parked.endAttempt(again!, undefined, { kind: 'dead', error: 'poison' });
    expect((await store.deadLetters.skip({ eventId: events[0]!.id }, step)).count).toBe(1);
    expect(await store.parked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: events[1]!.id } }]);
  });

  it('are not touched under a lease that was lost', async () => {
    const { store, events, park } = await withEvents('a', 1);
    const stale = { event: events[0]!, token: nobody };
    expect(await park(stale)).toEqual([nobody]);
    expect(await store.parked.models(everywhere, { limit: 10 })).toEqual([]);
    await park({ event: events[0]! });
    const [head] = await store.parked.dueHeads(everywhere, 10);
    const lost = { ...head!, token: nobody };
    expect(await store.parked.beginAttempt(lost, 'first')).toBe(false);
    for (const kind of ['done', 'retry', 'postponed', 'dead'] as const) {
      const outcome = { kind, error: 'stale', retryAfterMs: never };
      expect(await store.parked.endAttempt(lost, 'first', outcome)).toBe(false);
    }
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
    expect(await store.parked.endAttempt(head!, 'first', { kind: 'done' })).toBe(true);
    expect(await store.parked.endAttempt(head!, 'first', { kind: 'done' })).toBe(true);
    expect(await store.parked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: events[1]!.id } }]);
  });

  it('are as an operator left them when the end of an attempt is told again after a replay', async () => {
    const { store, events, park } = await withEvents('a', 1);
    await park({ event: events[0]! });
    const [head] = await store.parked.dueHeads(everywhere, 10);
    await store.parked.beginAttempt(head!, 'first');
    const told = [
      { attemptId: 'first', head: head!, outcome: { kind: 'dead', error: 'its answer is lost' } },
      { attemptId: undefined, head: { ...head!, attempts: 1 }, outcome: { kind: 'dead', error: 'given up' } },
    ] as const;
    for (const { attemptId, head: known, outcome } of told) {
      expect(await store.parked.endAttempt(known, attemptId, outcome)).toBe(true);
      expect((await store.deadLetters.replay({}, step)).count).toBe(1);
      expect(await store.parked.endAttempt(known, attemptId, outcome)).toBe(true);
      expect(await store.parked.dueHeads(everywhere, 10)).toMatchObject([{ attempts: 0 }]);
      await store.parked.beginAttempt(head!, 'another');
    }
  });

  it('wait as long as was said first when the end of an attempt is told again', async () => {
    const { store, events, park } = await withEvents('a', 1);
    await park({ event: events[0]! });
    const [head] = await store.parked.dueHeads(everywhere, 10);
    await store.parked.beginAttempt(head!, 'first');
    for (const retryAfterMs of [0, never])
      await store.parked.endAttempt(head!, 'first', { kind: 'retry', error: 'boom', retryAfterMs });
    const [again] = await store.parked.dueHeads(everywhere, 10);
    for (const retryAfterMs of [60_000, never])
      await store.parked.endAttempt(again!, undefined, { kind: 'postponed', error: 'slow', retryAfterMs });
    expect(await store.parked.nextDueMs(everywhere)).toBeLessThanOrEqual(60_000);
    expect((await store.deadLetters.find({}, { limit: 1 })).items[0]).toMatchObject({ attempts: 1 });
  });

  it('that would wait for longer than anything does are due, because the clock of the database has gone back', async () => {
    const { store, events, park } = await withEvents('a', 1);
    await park({ event: events[0]!, error: 'boom', attempts: 1, retryAfterMs: 3_600_000 });
    const waits = (waitMaxMs: number) => everywhere.map((place) => ({ ...place, waitMaxMs }));
    expect(await store.parked.dueHeads(everywhere, 10)).toEqual([]);
    expect(await store.parked.dueHeads(waits(3_600_000), 10)).toEqual([]);
    const [head] = await store.parked.dueHeads(waits(300_000), 10);
    await store.parked.beginAttempt(head!, 'first');
    await store.parked.endAttempt(head!, 'first', { kind: 'retry', error: 'boom', retryAfterMs: 60_000 });
    expect(await store.parked.dueHeads(waits(300_000), 10)).toEqual([]);
    expect(await store.parked.nextDueMs(everywhere)).toBeLessThanOrEqual(60_000);
  });

  it('have an attempt counted once, and taken back once, however often that is told', async () => {
    const { store, events, park } = await withEvents('a', 1);
    await park({ event: events[0]! });
    const [head] = await store.parked.dueHeads(everywhere, 10);
    const standing = async (): Promise<unknown> => {
      const [row] = (await store.deadLetters.find({}, { limit: 1 })).items;
      return row && [row.attempts, row.uncounted, row.dead];
    };
    for (const id of ['first', 'first', 'second', 'first'])
      expect(await store.parked.beginAttempt(head!, id)).toBe(true);
    expect(await standing()).toEqual([2, 0, false]);
    // Whoever gives an attempt up may have lost the lease by then.
    const lost = { ...head!, token: nobody };
    for (const id of ['first', 'first', 'never begun']) await store.parked.giveBackAttempt(lost, id);
    expect(await standing()).toEqual([1, 0, false]);
    const outage = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    for (let times = 0; times < 2; times++)
      expect(await store.parked.endAttempt(head!, 'second', outage)).toBe(true);
    expect(await standing()).toEqual([0, 1, false]);

    await store.parked.beginAttempt(head!, 'third');
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    for (let times = 0; times < 2; times++) await store.parked.endAttempt(head!, 'third', failure);
    await store.parked.giveBackAttempt(head!, 'third');
    expect(await standing()).toEqual([1, 1, false]);
    const [next] = await store.parked.dueHeads(everywhere, 10);
    expect(next).toMatchObject({ attempts: 1, uncounted: 1 });

    await store.parked.beginAttempt(head!, 'fourth');
    await store.parked.endAttempt(head!, 'fourth', { kind: 'dead', error: 'no' });
    await store.deadLetters.replay({}, step);
    await store.parked.giveBackAttempt(head!, 'fourth');
    expect(await standing()).toEqual([0, 0, false]);
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

describe('very much that is parked', () => {
  it('is replayed, and skipped, in bounded steps, each dead letter once', async () => {
    for (const change of ['replay', 'skip'] as const) {
      const { store, events, park } = await withEvents('a', 1, 2, 3, 4, 5);
      await park(...events.map((event) => ({ event, dead: true })));
      const counts: number[] = [];
      let after: string | undefined;
      do {
        const done = await store.deadLetters[change](
          { handler: 'notify' },
          { limit: 2, ...(after !== undefined && { after }) },
        );
        counts.push(done.count);
        after = done.next;
        // What fails again meanwhile is not replayed again.
        const [head] = await store.parked.dueHeads(everywhere, 1);
        if (head !== undefined)
          await store.parked.endAttempt(head, undefined, { kind: 'dead', error: 'again' });
      } while (after !== undefined);
      expect(counts).toEqual([2, 2, 1]);
    }
  });

  it('is looked at in bounded steps: models page by page, and only those that are asked for', async () => {
    const { store, park, write } = await withEvents('a', 1);
    for (const model of ['b', 'c', 'd', 'e']) await write(model, 1);
    const { events } = await store.log.read(allSlots, beginning, 100);
    await park(...events.map((event) => ({ event })));
    const found: ParkedModel[] = [];
    for (let after: ParkedModel | undefined; ; after = found.at(-1)) {
      const page = await store.parked.models(everywhere, { limit: 2, after });
      expect(page.length).toBeLessThanOrEqual(2);
      found.push(...page);
      if (page.length < 2) break;
    }
    expect(found.map(({ modelId }) => modelId).sort()).toEqual(['a', 'b', 'c', 'd', 'e']);
    const [one, other] = found;
    const absent = { ...one!, modelName: 'Another' };
    expect(await store.parked.stillParked([other!, absent, one!])).toHaveLength(2);
    expect(await store.parked.stillParked([absent])).toEqual([]);
  });

  it('is found by indexes that fit the questions about it', async () => {
    const { url } = await openStore();
    const of = `from eventlog.parked_events where dead and`;
    const order = 'order by parked_date, event_id, handler limit 100';
    const questions = [
      `select * from eventlog.parked_events where dead ${order}`,
      `select * ${of} handler = 'one' ${order}`,
      `select * from eventlog.parked_events where event_id = '00000000-0000-7000-8000-000000000000'`,
      `select * ${of} model_id = 'one' ${order}`,
    ];
    // Two models of three have a dead letter of one handler of two; ten times as much waits behind them.
    await query(url, `insert into eventlog.handlers (handler) values ('one'), ('two')`);
    await query(
      url,
      `insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal,
         event_type, event, attempts, dead, suspect)
       select case when n % 2 = 0 then 'one' else 'two' end, gen_random_uuid(), n % 16, 'Thing', 'm' || n % 3000, n, 0, 'Happened',
         '{}', 0, n % 10 = 0, false from generate_series(1, 30000) n`,
    );
    await query(url, 'analyze eventlog.parked_events');
    for (const question of questions) {
      const plan = await query<{ 'QUERY PLAN': string }>(url, `explain ${question}`);
      expect(plan.map((line) => line['QUERY PLAN']).join('\n')).not.toContain('Seq Scan');
    }
  });

  it('is copied within the database, so that no event is too large for a message', async () => {
    const { events, park, store } = await withEvents('a', 1);
    const [event] = events;
    const unread = Object.defineProperty(
      { ...(asJson(event!) as DeliverableEvent), createdDate: event!.createdDate },
      'payload',
      {
        get: () => {
          throw new Error('the payload was read');
        },
      },
    );
    await park({ event: unread });
    const [row] = (await store.deadLetters.find({}, { limit: 1 })).items;
    expect(asJson(row!.event)).toEqual(asJson(event!));
  });

  it('is kept although the log has lost it', async () => {
    const { events, park, store, url } = await withEvents('a', 1, 2);
    await query(url, 'delete from eventlog.events where id = $1', [events[0]!.id]);
    await park(...events.map((event) => ({ event })));
    const { items } = await store.deadLetters.find({}, { limit: 10 });
    const inOrder = items.toSorted((one, other) => one.event.modelVersion - other.event.modelVersion);
    expect(inOrder.map(({ event }) => asJson(event))).toEqual(events.map(asJson));
  });
});

it('a large event is read without payload and params, and loaded as it is, from what is parked, too', async () => {
  const { store, url, park } = await withEvents('a', 1, 2);
  const text = 'x'.repeat(100_000);
  await query(
    url,
    `update eventlog.events set payload = jsonb_build_object('text', $1::text) where model_version = 1`,
    [text],
  );
  const { events } = await store.log.read(allSlots, beginning, 10, 10_000);
  const [large, small] = events;
  expect(large).toMatchObject({ omitted: true, payload: null, modelVersion: 1 });
  expect(large!.bytes).toBeGreaterThan(100_000);
  expect(small).toMatchObject({ omitted: false, payload: {} });
  expect(await store.log.load('notify', [small!, large!])).toMatchObject([
    { id: small!.id, payload: {} },
    { id: large!.id, payload: { text }, actionParams: {}, createdDate: large!.createdDate },
  ]);

  // A cut through one transaction, and an earlier version that is fetched, leave it out as well.
  expect((await store.log.read(allSlots, beginning, 1, 10_000)).events).toMatchObject([{ omitted: true }]);
  await park({ event: large! });
  await query(url, 'delete from eventlog.events');
  const [head] = await store.parked.dueHeads(everywhere, 1, 10_000);
  expect(head!.event).toMatchObject({ id: large!.id, omitted: true });
  expect(head!.event.payload).toBeUndefined();
  expect(await store.log.load('notify', [head!.event])).toMatchObject([{ payload: { text } }]);
  expect((await store.parked.dueHeads(everywhere, 1))[0]!.event).toMatchObject({ payload: { text } });
  await expect(store.log.load('notify', [small!])).rejects.toMatchObject({ code: 'invariant-violation' });
});

it('an event may come again until its cursor has passed it and nothing of it is parked', async () => {
  const { store, events, park } = await withEvents('a', 1, 2);
  const asked = events.map(({ id }) => ({ handler: 'notify', eventId: id }));
  const unknown = { handler: 'notify', eventId: nobody };
  const ofNobody = { handler: 'retired', eventId: events[0]!.id };
  const again = async (): Promise<readonly string[]> =>
    (await store.parked.mayComeAgain([...asked, unknown, ofNobody])).map(({ eventId }) => eventId);
  expect(await again()).toEqual(events.map(({ id }) => id));

  const { next } = await store.log.read(allSlots, beginning, 10);
  const { leases } = await store.leases.renew('one', ['notify', 'elsewhere'], never);
  await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })));
  expect(await again()).toEqual([]);
  await park({ event: events[0]!, dead: true });
  expect(await again()).toEqual([events[0]!.id]);
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
    for (const none of ['00000000-0000-7000-8000-000000000000', 'no id', '']) {
      expect(await store.log.find(none)).toBeUndefined();
      expect((await store.deadLetters.find({ eventId: none }, { limit: 1 })).items).toEqual([]);
    }
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
  readonly write: (modelId: string, ...versions: readonly number[]) => Promise<unknown>;
  readonly url: string;
}> {
  const { store, url } = await openStore();
  await store.cursors.register(
    ['notify', 'elsewhere'].map((name) => ({ name, aliases: [], startFrom: 'beginning' })),
  );
  const writer = await EventWriter.connect(url);
  await writer.write(modelId, ...versions);
  const { events } = await store.log.read(allSlots, beginning, 100);
  const { leases } = await store.leases.renew('one', ['notify', 'elsewhere'], never);
  const tokens = new Map(leases.map(({ handler, slot, token }) => [`${handler} ${slot}`, token]));
  const fresh = {
    handler: 'notify',
    attempts: 0,
    uncounted: 0,
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
  const write = (id: string, ...more: readonly number[]): Promise<unknown> => writer.write(id, ...more);
  return { store, events, park, write, url };
}

function asJson(event: DeliverableEvent): unknown {
  return JSON.parse(JSON.stringify(event));
}

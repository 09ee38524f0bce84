import type {
  DatabaseDelivery,
  DeliverableEvent,
  DeliveryStore,
  LeasedModel,
  BlockedModel,
} from '@framework/core/adapter';
import { describe, expect, it } from 'vitest';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { openRegistry } from './fixtures/open-registry.js';
import { asJson, everywhere, never, nobody, step, withEvents } from './fixtures/blocked-events.js';
import { query } from './fixtures/query.js';

describe('very much that is blocked', () => {
  it('is replayed, and skipped, in bounded steps, each dead letter once', { tags: ['slow'] }, async () => {
    for (const change of ['replay', 'skip'] as const) {
      const { store, events, block } = await withEvents('a', 1, 2, 3, 4, 5);
      await block(...events.map((event) => ({ event, dead: true })));
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
        const [head] = await store.blocked.dueHeads(everywhere, 1);
        if (head !== undefined)
          await store.blocked.endAttempt(head, undefined, { kind: 'dead', error: 'again' });
      } while (after !== undefined);
      expect(counts).toEqual([2, 2, 1]);
    }
  });

  it('is looked at in bounded steps: models page by page, and only those that are asked for', async () => {
    const { store, block, write } = await withEvents('a', 1);
    for (const model of ['b', 'c', 'd', 'e']) await write(model, 1);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
    await block(...events.map((event) => ({ event })));
    const found = await modelsByPages(store, 2);
    expect(found.map(({ modelId }) => modelId).sort()).toEqual(['a', 'b', 'c', 'd', 'e']);
    const [one, other] = found;
    const absent = { ...one!, modelName: 'Another' };
    const { leases } = await store.leases.renew('one', ['notify', 'elsewhere'], never);
    const leased = (model: BlockedModel): LeasedModel => {
      const lease = leases.find(({ handler, slot }) => handler === model.handler && slot === model.slot);
      return { ...model, token: lease?.token ?? nobody };
    };
    expect(await store.blocked.stillBlocked([other!, absent, one!].map(leased))).toHaveLength(2);
    for (const difference of [
      { modelName: 'Another' },
      { modelId: 'f' },
      { handler: 'elsewhere' },
      { slot: (one!.slot + 1) % allSlots.length },
    ])
      expect(await store.blocked.stillBlocked([leased({ ...one!, ...difference })])).toEqual([]);
    // Whoever asks does not hold its slot any more.
    expect(await store.blocked.stillBlocked([{ ...absent, token: nobody }])).toEqual([absent]);
  });

  it(
    'is read once while its models are looked at page by page, and not anew for each page',
    { tags: ['slow'] },
    async () => {
      const { url } = await emptyDatabase();
      const registry = openRegistry([{ group: 0, member: 0, url }], {});
      await registry.ready();
      const [{ store }] = registry.deliveries() as [DatabaseDelivery];
      await store.cursors.register([{ name: 'notify', aliases: [], startFrom: 'beginning' }]);
      await query(
        url,
        `insert into eventlog.parked_models (slot, handler, model_name, model_id)
       select n % 16, 'notify', 'Thing', 'm' || n from generate_series(1, 40000) n`,
      );
      await query(url, 'analyze eventlog.parked_models');
      expect(await modelsByPages(store, 2_000)).toHaveLength(40_000);
      // What a connection has read is known when it has ended.
      await registry.close();
      const connections = `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`;
      await expect.poll(() => query(url, connections), { timeout: 20_000 }).toEqual([]);
      const [read] = await query<{ rows: number }>(
        url,
        `select (t.seq_tup_read + sum(i.idx_tup_read))::integer as rows
       from pg_stat_user_tables t join pg_stat_user_indexes i using (relid)
       where t.relname = 'parked_models' group by t.seq_tup_read`,
      );
      expect(read!.rows).toBeGreaterThanOrEqual(40_000);
      expect(read!.rows).toBeLessThan(3 * 40_000);
    },
  );

  it('is found by indexes that fit the questions about it', { tags: ['slow'] }, async () => {
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

  it('is found about as quickly while many models are being tried', { tags: ['slow'] }, async () => {
    const { store, url, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    await query(
      url,
      `with many as (
         insert into eventlog.parked_events (handler, event_id, slot, model_name, model_id, model_version, ordinal,
           event_type, event, attempts, dead, suspect)
         select handler, gen_random_uuid(), n % 16, model_name, 'm' || n, 1, 0, event_type, event, 0, false, false
         from eventlog.parked_events, generate_series(1, 16000) n returning *)
       insert into eventlog.parked_models (slot, handler, model_name, model_id, due_date)
       select slot, handler, model_name, model_id, parked_date from many`,
    );
    const placesOfMany = everywhere.map((place) => ({ ...place, headsMax: 1_000 }));
    const tried = (await store.blocked.dueHeads(placesOfMany, 1_000)).map(({ handler, event }) => ({
      ...event,
      handler,
    }));
    const quickestMs = async (except: readonly BlockedModel[]): Promise<number> => {
      const timesMs: number[] = [];
      for (let times = 0; times < 3; times++) {
        const startedMs = performance.now();
        expect(await store.blocked.dueHeads(placesOfMany, 200, { except })).toHaveLength(200);
        timesMs.push(performance.now() - startedMs);
      }
      return Math.min(...timesMs);
    };
    expect(tried).toHaveLength(1_000);
    // From the sixth time on, a prepared statement has one plan for all values.
    for (let times = 0; times < 10; times++) await quickestMs([]);
    expect(await quickestMs(tried)).toBeLessThan(15 * (await quickestMs([])));
  });

  it('is copied within the database, so that no event is too large for a message', async () => {
    const { events, block, store } = await withEvents('a', 1);
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
    await block({ event: unread });
    const [row] = (await store.deadLetters.find({}, { limit: 1 })).items;
    expect(asJson(row!.event)).toEqual(asJson(event!));
  });

  it('is kept although the log has lost it', async () => {
    const { events, block, store, url } = await withEvents('a', 1, 2);
    await query(url, 'delete from eventlog.events where id = $1', [events[0]!.id]);
    await block(...events.map((event) => ({ event })));
    const { items } = await store.deadLetters.find({}, { limit: 10 });
    const inOrder = items.toSorted((one, other) => one.event.modelVersion - other.event.modelVersion);
    expect(inOrder.map(({ event }) => asJson(event))).toEqual(events.map(asJson));
  });
});

/** All models of `notify` that have blocked events, as a process looks at them that gains the slots. */
async function modelsByPages(store: DeliveryStore, limit: number): Promise<readonly BlockedModel[]> {
  const found: BlockedModel[] = [];
  for (let after: BlockedModel | undefined; ; after = found.at(-1)) {
    const page = await store.blocked.models(everywhere, { limit, after });
    expect(page.length).toBeLessThanOrEqual(limit);
    found.push(...page);
    if (page.length < limit) return found;
  }
}

it('a large event is read without payload and params, and loaded as it is, from what is blocked, too', async () => {
  const { store, url, block } = await withEvents('a', 1, 2);
  const text = 'x'.repeat(100_000);
  await query(
    url,
    `update eventlog.events set payload = jsonb_build_object('text', $1::text) where model_version = 1`,
    [text],
  );
  const { events } = await store.log.read(allSlots, await beginningOf(store), 10, 10_000);
  const [large, small] = events;
  expect(large).toMatchObject({ omitted: true, payload: null, modelVersion: 1 });
  expect(large!.bytes).toBeGreaterThan(100_000);
  expect(small).toMatchObject({ omitted: false, payload: {} });
  // Hooks may log it.
  expect(asJson(large!)).toMatchObject({ id: large!.id, modelVersion: 1, omitted: true });
  expect(asJson(large!)).not.toHaveProperty('payload');
  expect(await store.log.load('notify', [small!, large!])).toMatchObject([
    { id: small!.id, payload: {} },
    { id: large!.id, payload: { text }, actionParams: {}, createdDate: large!.createdDate },
  ]);

  // A cut through one transaction, and an earlier version that is fetched, leave it out as well.
  expect((await store.log.read(allSlots, await beginningOf(store), 1, 10_000)).events).toMatchObject([
    { omitted: true },
  ]);
  await block({ event: large! });
  await query(url, 'delete from eventlog.events');
  const [head] = await store.blocked.dueHeads(everywhere, 1, { bytesMax: 10_000 });
  expect(head!.event).toMatchObject({ id: large!.id, omitted: true });
  expect(head!.event.payload).toBeUndefined();
  expect(await store.log.load('notify', [head!.event])).toMatchObject([{ payload: { text } }]);
  expect((await store.blocked.dueHeads(everywhere, 1))[0]!.event).toMatchObject({ payload: { text } });
  await expect(store.log.load('notify', [small!])).rejects.toMatchObject({ code: 'invariant-violation' });
  await store.deadLetters.skip({ dead: false }, step);
  await expect(block({ event: large! })).rejects.toMatchObject({ code: 'invariant-violation' });
});

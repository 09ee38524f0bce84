// @module-tag postgres
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';

import { placeOfTime } from '../src/delivery/log-place.js';
import { PgBlockedModels } from '../src/delivery/pg-blocked-models.js';
import { PgDeliveryLog } from '../src/delivery/pg-delivery-log.js';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { EventWriter } from './fixtures/event-writer.js';
import { query } from './fixtures/query.js';

const eventCount = 20_000;
const eventsOfTransaction = 10;
const lateCount = 40;
const headsMax = 120;

/** Writes many events of one model. */
const writeModelText = `
  insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
    model_name, model_version, event_type, payload, headers, started_date, slot)
  select gen_random_uuid(), gen_random_uuid(), 0, 'test', 'Write', '{}', 'test', 'm', 'Thing', n, 'ThingChangedEvent', '{}', '{}', now(), 0
  from generate_series(1, ${eventCount}) n`;

/** Leases all slots of a handler and blocks 600 models in each. */
const blockModelsText = `
  with leased as (
    update eventlog.leases set process_id = 'p', history = eventlog.server_history() where handler = $1 returning handler, slot
  )
  insert into eventlog.blocked_models (handler, slot, model_name, model_id, model_version, ordinal, due_date)
  select handler, slot, 'Thing', slot || ' ' || n, 1, 0, now() from leased, generate_series(1, 600) n`;

/** Rows that the transaction has read so far from the tables with such a name. */
const rowsRead = `select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::integer as count
  from pg_stat_xact_user_tables where schemaname = 'eventlog' and relname like $1`;

describe.each(['missing', 'from an empty log', 'current'])('with statistics that are %s', (statistics) => {
  test.each(['auto', 'force_generic_plan'])(
    'a read beside a transaction that stays open reads only what is new (plan_cache_mode %s)',
    async (mode) => {
      const { store, url } = await openStore();
      if (statistics === 'from an empty log') await query(url, 'analyze eventlog.events');
      // Of any database of the server: its number is in every snapshot from now on.
      const open = await EventWriter.connect((await emptyDatabase()).url);
      await open.begin();
      await open.takeXid();
      await writeBacklog(url);
      if (statistics === 'current') await query(url, 'analyze eventlog.events');
      const late = await EventWriter.connect(url);
      await late.begin();
      await late.takeXid();
      const { log, session } = await logOf(url, mode);
      const { next } = await log.read(allSlots, await beginningOf(store), 2 * eventCount);

      await session.query('begin');
      const before = await rowsReadIn(session);
      for (let count = 0; count < 20; count++)
        expect((await log.read(allSlots, next, 100)).events).toEqual([]);
      await late.write('late', ...Array.from({ length: lateCount }, (_unused, index) => index + 1));
      await late.commit();
      expect((await log.read(allSlots, next, 100)).events).toHaveLength(lateCount);
      expect((await rowsReadIn(session)) - before).toBeLessThan(eventCount / 10);
    },
  );

  test.each(['auto', 'force_generic_plan'])(
    'a read of a blocked model reads only what it returns, however many events wait (plan_cache_mode %s)',
    async (mode) => {
      const { store, url } = await openStore();
      if (statistics === 'from an empty log') await query(url, 'analyze eventlog.events');
      const handler = await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
      const [lease] = (await store.leases.renew('one', [handler], 600_000)).leases;
      await query(url, writeModelText);
      await writeBacklog(url);
      if (statistics === 'current') await query(url, 'analyze eventlog.events');
      const { session } = await logOf(url, mode);
      const models = new PgBlockedModels(session);
      await session.query('begin');
      for (let modelVersion = 1; modelVersion <= 20; modelVersion++) {
        const position = { modelVersion, ordinal: 0 };
        const [events] = await models.read([{ ...lease!, modelName: 'Thing', modelId: 'm', position }], 100);
        expect(events!.map((event) => event.modelVersion)).toEqual(
          Array.from({ length: 100 }, (_unused, index) => modelVersion + index),
        );
      }
      expect(await rowsReadIn(session)).toBeLessThan(eventCount / 5);
    },
  );
});

test('about as many due models are read as are asked for, even while only they have statistics', async () => {
  const { store, url } = await openStore();
  const handler = await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
  const { session } = await logOf(url, 'auto');
  await session.query(blockModelsText, [handler]);
  await session.query('analyze eventlog.blocked_models');
  await session.query('begin');
  const places = allSlots.map((slot) => ({ handler, slot }));
  expect(await new PgBlockedModels(session).dueHeads(places, headsMax)).toHaveLength(headsMax);
  expect(await rowsReadIn(session, 'blocked_models')).toBeLessThanOrEqual(3 * headsMax);
});

test.each([
  ['many transactions', writeBacklog],
  ['one large transaction', (url: string) => query(url, writeModelText)],
])('the place of a time is found with a few looks at a log of %s', async (_what, write) => {
  const { url } = await openStore();
  await write(url);
  const { session } = await logOf(url, 'auto');
  await session.query('begin');
  const { rows } = await session.query<{ xid: string }>(placeOfTime('now()'));
  expect(Number(rows[0]!.xid)).toBeGreaterThan(0);
  expect(await rowsReadIn(session)).toBeLessThan(eventCount / 5);
});

/** The log as one session reads it, so that what it reads can be counted. */
async function logOf(url: string, mode: string): Promise<{ log: PgDeliveryLog; session: pg.Client }> {
  const session = new pg.Client({ connectionString: url });
  await session.connect();
  onTestFinished(() => session.end());
  await session.query(`set plan_cache_mode = ${mode}`);
  return { log: new PgDeliveryLog(session), session };
}

async function writeBacklog(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  // Many transactions, as a log has.
  for (let from = 1; from <= eventCount; from += eventsOfTransaction)
    await client.query(
      `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
         model_name, model_version, event_type, payload, headers, started_date, slot, early_xid)
       select gen_random_uuid(), gen_random_uuid(), 0, 'test', 'Write', '{}', 'test', 'm' || n, 'Thing', 1, 'ThingChangedEvent', '{}',
         '{}', now(), n % 16, false from generate_series($1::integer, $1 + ${eventsOfTransaction - 1}) n`,
      [from],
    );
  await client.end();
}

async function rowsReadIn(session: pg.Client, tables = 'events%'): Promise<number> {
  const { rows } = await session.query<{ count: number }>(rowsRead, [tables]);
  return rows[0]!.count;
}

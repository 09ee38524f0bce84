import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { type OperatedDatabases, operatedDatabases } from './fixtures/operated-databases.js';
import { pretendLong, scannedBy } from './fixtures/plans.js';

const blockedCount = 1_000_000;
const loggedCount = 100_000;
/** An answer may take as long as this many reads of the whole table. */
const readsMax = 6;

let all: OperatedDatabases;

/** The indexes of a table, whose rows are inserted faster without them. */
const indexesOf = `select indexdef from pg_indexes where schemaname = 'eventlog' and tablename = 'blocked_models'
  and indexname <> 'blocked_models_pkey'`;

beforeAll(async () => {
  all = await operatedDatabases();
  const { first } = all;
  await first.query(`insert into eventlog.handlers (handler) values ('notify'), ('bill')`);
  await first.query(
    `insert into eventlog.handler_names (name, handler) select handler, handler from eventlog.handlers`,
  );
  const definitions = await first.query<{ indexdef: string }>(indexesOf);
  // The statistics of a server that has been running for long; the tables are thrown away.
  await first.query(`
    set session_replication_role = replica;
    set maintenance_work_mem = '256MB';
    alter table eventlog.blocked_models set unlogged;
    do $$ declare name text; begin
      for name in select indexname from pg_indexes where schemaname = 'eventlog' and tablename = 'blocked_models'
        and indexname <> 'blocked_models_pkey' loop execute 'drop index eventlog.' || name; end loop;
    end $$`);
  await first.query(
    `insert into eventlog.blocked_models (handler, slot, model_name, model_id, model_version, ordinal, event_id, event_type, attempts,
       error, dead, blocked_date, due_date)
     select case when n % 10 = 0 then 'bill' else 'notify' end, n % 16, 'Thing', 'thing-' || n, 0, 0,
       ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'ThingChangedEvent', 3, 'error ' || n % 20 || E'\\n    at a line',
       n % 100 <> 0, timestamptz '2026-01-01' + n * interval '1 second', case when n % 100 = 0 then now() end
     from generate_series(1, $1::integer) n`,
    [blockedCount],
  );
  for (const { indexdef } of definitions) await first.query(indexdef);
  await first.query('analyze eventlog.blocked_models');
  await first.query(
    `insert into eventlog.events (id, epoch, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
       model_name, model_version, event_type, payload, headers, started_date, slot)
     select ('018f0000-0000-7000-8000-' || lpad(to_hex(10 * n), 12, '0'))::uuid, 1, gen_random_uuid(), 0, 'test', 'ChangeThing', '{}', 'user-' || n % 7, 'thing-' || 10 * n, 'Thing', 0,
       'ThingChangedEvent', '{}', '{}', now(), n % 16
     from generate_series(1, $1::integer) n`,
    [loggedCount],
  );
  await first.query('analyze eventlog.events');
  await pretendLong(first.query.bind(first), [`eventlog.${currentPartition}`]);
  await first.query(
    `insert into eventlog.cursors (handler, slot, epoch, snapshot)
     select handler, slot, 1, pg_current_snapshot() from eventlog.slots, eventlog.handlers`,
  );
});

afterAll(() => all.close());

/** Answers, and how long that took, in milliseconds. */
async function timed<T>(
  work: () => Promise<T>,
): Promise<{ readonly answer: T; readonly durationMs: number }> {
  const startMs = performance.now();
  const answer = await work();
  return { answer, durationMs: performance.now() - startMs };
}

describe('with 1,000,000 blocked models, an operator', () => {
  test.each<[string, () => Promise<unknown>]>([
    ['consumers', () => all.operator.consumers()],
    ['dead letters', () => all.operator.deadLetters()],
    ['dead letters of a handler', () => all.operator.deadLetters({ handler: 'bill' })],
    ['blocked events', () => all.operator.blocked({ dead: true })],
    [
      'blocked events of an error',
      () => all.operator.blocked({ handler: 'notify', errorLine: 'error 7', dead: true }),
    ],
    ['blocked events of a model', () => all.operator.blocked({ modelId: 'thing-70' })],
    [
      'a dry run',
      () => all.operator.replay({ handler: 'notify' }, { by: 'olivia', reason: 'count', dryRun: true }),
    ],
    ['a model', () => all.operator.why('thing-70')],
    ['shards', () => all.operator.shards()],
    ['the newest events', () => all.operator.events()],
  ])('answers within the time of six reads of the whole table: %s', async (_name, work) => {
    // The first read of new rows is slower, because the server still has to mark them as committed.
    await work();
    const { answer, durationMs } = await timed(work);
    const read = await timed(() => all.first.query(`select sum(length(error)) from eventlog.blocked_models`));
    expect(answer).toMatchObject({ failures: [] });
    expect(durationMs / read.durationMs).toBeLessThan(readsMax);
  });

  test('says which counts are lower bounds', async () => {
    const { items } = await all.operator.deadLetters();
    expect(items).toHaveLength(20);
    expect(
      items.find(({ errorLine, handler }) => handler === 'notify' && errorLine === 'error 7'),
    ).toMatchObject({
      count: 10_000,
      isLowerBound: true,
    });
    const [bill, notify] = (await all.operator.consumers()).items;
    expect(bill?.databases[0]).toMatchObject({
      blockedCount: 10_000,
      blockedIsLowerBound: true,
      deadCount: 10_000,
    });
    expect(notify?.databases[0]).toMatchObject({ deadCount: 10_000, deadIsLowerBound: true });
  });
});

describe('with 100,000,000 events in the log, the statements of an operator read no table from its beginning to its end', () => {
  const since = new Date(Date.now() - 3_600_000);
  test.each<[string, () => Promise<unknown>]>([
    ['shards', () => all.operator.shards()],
    ['consumers', () => all.operator.consumers()],
    ['dead letters', () => all.operator.deadLetters()],
    ['dead letters of a handler', () => all.operator.deadLetters({ handler: 'bill' })],
    ['blocked events', () => all.operator.blocked({ dead: true })],
    [
      'blocked events of an error',
      () => all.operator.blocked({ handler: 'notify', errorLine: 'error 7', dead: true }),
    ],
    ['the newest events', () => all.operator.events()],
    ['events of a principal since', () => all.operator.events({ principal: 'user-3', since })],
    ['events of nobody since', () => all.operator.events({ principal: 'nobody', since, until: new Date() })],
    ['events of a model', () => all.operator.events({ modelId: 'thing-70', type: 'ThingChangedEvent' })],
    ['events of an action', () => all.operator.events({ actionId: '018f0000-0000-7000-8000-000000000000' })],
    ['an event', () => all.operator.event('018f0000-0000-7000-8000-000000000000')],
    ['a model', () => all.operator.model('thing-70')],
    ['why', () => all.operator.why('thing-70')],
    ['an action', () => all.operator.action('018f0000-0000-7000-8000-000000000000')],
    ['a key', () => all.operator.idempotencyKey('k')],
    ['the audit', () => all.operator.audit()],
  ])('%s', async (_name, work) => {
    const { statementCount, tables } = await scannedBy(work, all.first.query.bind(all.first), /eventlog\./);
    expect(statementCount).toBeGreaterThan(0);
    expect(tables.filter((table) => table === 'blocked_models' || table === currentPartition)).toEqual([]);
  });
});

/** Later partitions are empty, and are read faster without an index. */
const currentPartition = `events_${new Date().toISOString().slice(0, 7).replace('-', '_')}`;

// @module-tag postgres
import {
  type BlockedFailure,
  type DeliverableEvent,
  type DeliveryStore,
  type SlotLease,
  positionAfter,
} from '@framework/core/adapter';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { failedOnce } from './fixtures/blocked-models.js';
import { allSlots, beginningOf, openStore } from './fixtures/delivery-store.js';
import { emptyDatabase } from './fixtures/empty-database.js';
import { EventWriter } from './fixtures/event-writer.js';
import { openRegistry } from './fixtures/open-registry.js';
import { isSent, proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

const dayMs = 86_400_000;
/** The longest duration of a commit on a busy machine; behind the lock, it would take longer. */
const lockedMs = 4_000;

const addOldMonth = `
  create table eventlog.events_2020_01 partition of eventlog.events for values from ('2020-01-01') to ('2020-02-01')`;

const writeInOldMonth = `
  insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
    model_name, model_version, event_type, payload, headers, started_date, slot, created_date)
  values (gen_random_uuid(), gen_random_uuid(), 0, 'test', 'Write', '{}', 'test', 'a', 'Thing', 1, 'ThingChangedEvent',
    '{}', '{}', '2020-01-15', 0, '2020-01-15')`;

test('a partition is dropped once it is old and every cursor has passed it', async () => {
  const { store, url } = await openStore();
  await query(url, addOldMonth);
  await (await EventWriter.connect(url)).write('a', 1);
  await query(
    url,
    `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
       model_name, model_version, event_type, payload, headers, started_date, slot, created_date)
     select id, action_id, ordinal, namespace, action_name, action_params, principal, model_id, model_name, 2, event_type,
       payload, headers, started_date, slot, '2020-01-15' from eventlog.events`,
  );
  await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
  expect(await store.partitions.drop(30 * dayMs)).toEqual([]);

  const { leases } = await store.leases.renew('one', ['notify'], dayMs);
  const pass = async (): Promise<void> => {
    const { next } = await store.log.read(allSlots, await beginningOf(store), 10);
    await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })));
  };
  await pass();
  expect(await store.partitions.drop(100 * 365 * dayMs)).toEqual([]);
  // The last events of the partition are not old enough yet, although the first ones are.
  expect(await store.partitions.drop(Date.now() - Date.parse('2020-01-20T00:00:00Z'))).toEqual([]);
  expect(await store.partitions.drop(Date.now() - Date.parse('2020-01-31T23:59:00Z'))).toEqual([]);
  // While a transaction that began before the event is open anywhere on the server, the cursor may still need the partition.
  await vi.waitFor(
    async () => {
      await pass();
      expect(await store.partitions.drop(30 * dayMs)).toEqual(['events_2020_01']);
    },
    { timeout: 30_000 },
  );
  expect(await query(url, 'select model_version::int as version from eventlog.events')).toEqual([
    { version: 1 },
  ]);
});

test('a partition is dropped once the last handler that had not passed it is retired', async () => {
  const { store, url } = await openStore();
  await query(url, addOldMonth);
  await query(url, writeInOldMonth);
  await store.cursors.register({ name: 'gone', aliases: [], startFrom: 'beginning' });
  expect(await store.partitions.drop(30 * dayMs)).toEqual([]);
  await store.cursors.retire('gone', { discardBlocked: false });
  expect(await store.partitions.drop(30 * dayMs)).toEqual(['events_2020_01']);
});

test('old rows of the default partition are deleted once every cursor has passed them, and newer ones stay', async () => {
  const { store, url } = await openStore();
  await query(url, writeInOldMonth);
  await query(url, writeInOldMonth.replaceAll('2020-01-15', '2100-01-15'));
  const versions = (): Promise<readonly object[]> =>
    query(
      url,
      'select extract(year from created_date)::integer as year from eventlog.events_default order by 1',
    );
  await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
  await store.partitions.drop(30 * dayMs);
  expect(await versions()).toEqual([{ year: 2020 }, { year: 2100 }]);
  const { leases } = await store.leases.renew('one', ['notify'], dayMs);
  await vi.waitFor(
    async () => {
      const { next } = await store.log.read(allSlots, await beginningOf(store), 10);
      await store.cursors.save(leases.map((lease) => ({ ...lease, cursor: next })));
      await store.partitions.drop(30 * dayMs);
      expect(await versions()).toEqual([{ year: 2100 }]);
    },
    { timeout: 30_000 },
  );
});

describe('the events that wait in a blocked model', () => {
  test('are delivered, found and drained after their partition was dropped', async () => {
    const { store, url } = await openStore();
    await query(url, addOldMonth);
    for (const [model, version] of [
      ['a', 1],
      ['a', 2],
      ['a', 3],
      ['b', 1],
    ] as const)
      await query(url, writeInOldMonth.replace(`'a', 'Thing', 1`, `'${model}', 'Thing', ${version}`));
    const { held, events } = await passAll(store);
    const [first, second, third] = events;
    await store.blocked.fail([failureOf(second!, held, { dead: true, error: 'no' })]);
    const partition = `select model_id || model_version as version from eventlog.events_2020_01`;
    expect(await query(url, partition)).toHaveLength(4);
    await vi.waitFor(
      async () => {
        await passAll(store);
        expect(await store.partitions.drop(30 * dayMs)).toEqual(['events_2020_01']);
      },
      { timeout: 30_000 },
    );
    expect(await versionsIn(url, 'events_default')).toEqual(['a2', 'a3']);
    const [row] = (await store.deadLetters.find({ dead: true }, { limit: 1 })).items;
    expect(row).toMatchObject({ event: { id: second!.id, createdDate: second!.createdDate }, error: 'no' });
    expect(await store.log.load([third!])).toMatchObject([{ id: third!.id, modelVersion: 3 }]);
    await store.deadLetters.replay({}, { limit: 10 });
    const [head] = await store.blocked.dueHeads(held, 10);
    expect(head).toMatchObject({ hasFailed: true, event: { id: second!.id } });
    const [behind] = await store.blocked.read([head!], 10);
    expect(behind!.map(({ id }) => id)).toEqual([second!.id, third!.id]);
    // What is kept is not delivered a second time to those who have passed it.
    const [cursor] = await store.cursors.load([first!.slot]);
    expect((await store.log.read(allSlots, cursor!.cursor, 10)).events).toEqual([]);

    await store.blocked.move([{ ...head!, position: positionAfter(second!), ends: false }]);
    await store.partitions.drop(30 * dayMs);
    expect(await versionsIn(url)).toEqual(['a3']);
    await store.blocked.move([{ ...head!, position: positionAfter(third!), ends: true }]);
    await store.partitions.drop(30 * dayMs);
    expect(await versionsIn(url)).toEqual([]);
  });

  test.each([
    ['more than 1,000', `generate_series(1, 1001) n`, `'{}'`],
    [
      'larger than 4 MB',
      `generate_series(1, 2) n`,
      `to_jsonb((select string_agg(md5(i::text || n), '') from generate_series(1, 120000) i))`,
    ],
  ])('keep their partition while they are %s', async (_what, series, payload) => {
    const { store, url } = await openStore();
    await query(url, addOldMonth);
    await query(
      url,
      `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
         model_name, model_version, event_type, payload, headers, started_date, slot, created_date)
       select gen_random_uuid(), gen_random_uuid(), 0, 'test', 'Write', '{}', 'test', 'a', 'Thing', n, 'ThingChangedEvent', ${payload},
         '{}', '2020-01-15', 0, '2020-01-15' from ${series}`,
    );
    const { held, events } = await passAll(store);
    await store.blocked.fail([failureOf(events[0]!, held, {})]);
    const dropped = async (): Promise<readonly string[]> => {
      await passAll(store);
      return store.partitions.drop(30 * dayMs);
    };
    // No open transaction keeps the partition any more.
    await expect
      .poll(
        async () => {
          await passAll(store);
          return query(
            url,
            `select from eventlog.cursors where pg_snapshot_xmin(snapshot) <= (select xid from eventlog.events order by xid desc limit 1)`,
          );
        },
        { timeout: 30_000 },
      )
      .toEqual([]);
    expect(await dropped()).toEqual([]);
    const [head] = await store.blocked.dueHeads(held, 1);
    await store.blocked.move([{ ...head!, position: positionAfter(events[0]!), ends: false }]);
    await vi.waitFor(async () => expect(await dropped()).toEqual(['events_2020_01']), { timeout: 30_000 });
    expect(await versionsIn(url)).toHaveLength(events.length - 1);
  });
});

test('a partition stays when a transaction as old as the partition commits while the drop waits', async () => {
  const { store, url, reader: writer } = await withReader();
  await query(url, addOldMonth);
  await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
  await writer.query('begin');
  await writer.query(writeInOldMonth);
  const dropped = store.partitions.drop(30 * dayMs);
  const waiting = `select from pg_locks where not granted and relation::regclass::text like 'eventlog.events%'
    and database = (select oid from pg_database where datname = current_database())`;
  await vi.waitFor(async () => expect((await writer.query(waiting)).rows).not.toEqual([]), {
    timeout: 30_000,
    interval: 5,
  });
  await writer.query('commit');
  expect(await dropped).toEqual([]);
  expect(await query(url, 'select model_id from eventlog.events')).toEqual([{ model_id: 'a' }]);
});

test('no commit waits for a process that goes silent while it drops a partition', async () => {
  const database = await emptyDatabase();
  const { url } = database;
  const { proxy, url: proxiedUrl } = await proxied(database);
  const registry = openRegistry([{ group: 0, member: 0, url: proxiedUrl }], {});
  await registry.ready();
  await query(url, addOldMonth);
  const [delivery] = registry.deliveries();
  let isSilent = false;
  proxy.judge = (message) => {
    if (isSilent) return 'drop';
    isSilent = isSent(message, 'select eventlog.drop_partition');
    return 'forward';
  };
  const dropped = delivery!.store.partitions.drop(30 * dayMs);
  await vi.waitUntil(() => isSilent, { timeout: 30_000, interval: 1 });
  const left = `select from pg_class where relname = 'events_2020_01'`;
  await vi.waitFor(async () => expect(await query(url, left)).toEqual([]), { timeout: lockedMs });
  await (await EventWriter.connect(url)).write('a', 1);
  proxy.judge = () => 'forward';
  proxy.cut();
  expect(await dropped).toEqual([]);
});

describe('during a long read of the log', () => {
  test('no commit waits for partitions to be created, which happens after the read', async () => {
    const { store, url, reader } = await withReader();
    const [last] = await query<{ name: string }>(
      url,
      `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'eventlog.events'::regclass
       and inhrelid::regclass::text ~ '\\d$' order by 1 desc limit 1`,
    );
    await query(url, `drop table ${last!.name}`);
    await read(reader);
    const created = store.partitions.create().catch((error: unknown) => error);
    expect(await longestCommitMs(url, created)).toBeLessThan(lockedMs);
    expect(await created).toMatchObject({ retryable: true });
    await reader.query('commit');
    await store.partitions.create();
    expect(await query(url, `select from pg_class where oid = to_regclass('${last!.name}')`)).toHaveLength(1);
  });

  test('no commit waits for a partition to be dropped, which happens after the read', async () => {
    const { store, url, reader } = await withReader();
    await query(url, addOldMonth);
    await read(reader);
    const dropped = store.partitions.drop(30 * dayMs).catch((error: unknown) => error);
    expect(await longestCommitMs(url, dropped)).toBeLessThan(lockedMs);
    expect(await dropped).toMatchObject({ retryable: true });
    await reader.query('commit');
    expect(await store.partitions.drop(30 * dayMs)).toEqual(['events_2020_01']);
  });

  test('a process starts at once and blocks no commit', async () => {
    const { url, reader } = await withReader();
    const months = await query<{ name: string }>(
      url,
      `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'eventlog.events'::regclass
       and inhrelid::regclass::text ~ '\\d$' order by 1`,
    );
    await query(url, `drop table ${months.at(-1)!.name}`);
    await read(reader);
    const ready = openRegistry([{ group: 0, member: 0, url }], {}).ready();
    expect(await longestCommitMs(url, ready)).toBeLessThan(lockedMs);
    await ready;
  });
});

test('partitions are created once when many processes create them at the same time', async () => {
  const { store, url } = await openStore();
  await query(
    url,
    `do $$ declare name text; begin
       for name in select inhrelid::regclass::text from pg_inherits where inhparent = 'eventlog.events'::regclass
         and inhrelid::regclass::text ~ '\\d$' loop execute 'drop table ' || name; end loop; end $$`,
  );
  const stores = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const registry = openRegistry([{ group: 0, member: 0, url }], { migrate: 'off' });
      return registry.deliveries()[0]!.store;
    }),
  );
  await Promise.all([store, ...stores].map((each) => each.partitions.create()));
  expect(
    await query(url, `select from pg_inherits where inhparent = 'eventlog.events'::regclass`),
  ).toHaveLength(5);
});

test('a notification reaches its listener, even after the connection was lost', async () => {
  const { store, url } = await openStore();
  const onNotification = vi.fn<() => void>();
  const stop = await store.notifications.listen(onNotification);
  const notified = async (): Promise<void> => {
    // Two calls may only mean that a connection has broken, and that the next one listens.
    for (let call = 1; call <= 3; call++) {
      onNotification.mockClear();
      await vi.waitFor(async () => {
        await store.notifications.notify();
        expect(onNotification).toHaveBeenCalled();
      }, 30_000);
    }
  };
  await notified();
  await breakListeners(url);
  await notified();
  await stop();
});

test('a listener hears each time that it listens again, because it may have missed notifications', async () => {
  const { store, url } = await openStore();
  const listening = vi.spyOn(pg.Client.prototype, 'query');
  /** How many times it listened successfully before each call. */
  const heardAfter: number[] = [];
  const stop = await store.notifications.listen(() => {
    const begun = listening.mock.calls.map(([sql]) => sql === 'listen eventlog');
    const settled = listening.mock.settledResults;
    heardAfter.push(begun.filter((isListen, call) => isListen && settled[call]?.type === 'fulfilled').length);
  });
  onTestFinished(stop);
  await expect.poll(() => heardAfter).toEqual([1]);
  for (let round = 1; round <= 2; round++) {
    await breakListeners(url);
    // When the connection breaks, and when the next one listens.
    await expect.poll(() => heardAfter.slice(-2)).toEqual([round, round + 1]);
  }
});

/** Ends all sessions that listen for notifications of a database. */
async function breakListeners(url: string): Promise<void> {
  await query(
    url,
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'framework notifications' and datname = current_database()`,
  );
}

/** Reads the whole log as the handler `notify`, which holds all slots, and saves that its cursors have passed it. */
async function passAll(
  store: DeliveryStore,
): Promise<{ readonly held: readonly SlotLease[]; readonly events: readonly DeliverableEvent[] }> {
  await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
  const { leases: held } = await store.leases.renew('one', ['notify'], dayMs);
  const { events, next } = await store.log.read(allSlots, await beginningOf(store), 2_000);
  await store.cursors.save(held.map((lease) => ({ ...lease, cursor: next })));
  return { held, events };
}

function failureOf(
  event: DeliverableEvent,
  held: readonly SlotLease[],
  failure: Partial<BlockedFailure>,
): BlockedFailure {
  const { token } = held.find(({ slot }) => slot === event.slot)!;
  return { ...failedOnce, handler: 'notify', token, event, ...failure };
}

/** A store, and a session that can hold a transaction open in which it has read the log. */
async function withReader(): Promise<{
  readonly store: DeliveryStore;
  readonly url: string;
  readonly reader: pg.Client;
}> {
  const { store, url } = await openStore();
  const reader = new pg.Client({ connectionString: url });
  await reader.connect();
  onTestFinished(() => reader.end());
  return { store, url, reader };
}

async function read(reader: pg.Client): Promise<void> {
  await reader.query('begin');
  await reader.query('select count(*) from eventlog.events');
}

/** The longest duration of the commits that were made one after the other until the work was done. */
async function longestCommitMs(url: string, work: Promise<unknown>): Promise<number> {
  const writer = await EventWriter.connect(url);
  const over = new AbortController();
  void work.finally(() => over.abort()).catch(() => undefined);
  let longestMs = 0;
  for (let version = 1; !over.signal.aborted; version++) {
    const startedMs = performance.now();
    await writer.write('busy', version);
    longestMs = Math.max(longestMs, performance.now() - startedMs);
  }
  return longestMs;
}

async function versionsIn(url: string, table = 'events'): Promise<readonly unknown[]> {
  const text = `select model_id || model_version as version from eventlog.${table} order by created_date, model_version`;
  return (await query<{ version: string }>(url, text)).map(({ version }) => version);
}

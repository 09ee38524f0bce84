// @module-tag postgres
import { describeDeliveryStore, describeLateCommits } from '@framework/conformance';
import { systemClock } from '@framework/core';
import type { DeliveryLog, DeliveryStore } from '@framework/core/adapter';
import { clientConfigOf } from '@framework/drizzle-adapter/log';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { TestPostgres } from '@framework/testing/postgres';
import { afterAll, expect, test, vi } from 'vitest';

import { PgDeliveryFixture } from '../../drizzle-adapter/test/fixtures/pg-delivery-fixture.js';
import { query } from '../../drizzle-adapter/test/fixtures/query.js';
import { parseLsn } from '../src/pgoutput-rows.js';
import { ReplicationFeed } from '../src/replication-feed.js';

let server: EmbeddedPostgres | undefined;
/** How many reads the stream has answered, and all reads. */
const reads = { streamed: 0, all: 0 };

afterAll(async () => {
  await server?.stop();
});

describeDeliveryStore('PostgreSQL, by logical replication', () => openStreamed());
describeLateCommits('PostgreSQL, by logical replication', () => openStreamed());

test('The suite reads from the stream, not only with SQL', () => {
  // Fewer on a busy machine, where SQL is faster than the stream.
  expect(reads.streamed).toBeGreaterThan(5);
  expect(reads.all).toBeGreaterThan(reads.streamed);
});

/** The delivery suite's fixture whose log is read as a source reads it. */
async function openStreamed(): Promise<PgDeliveryFixture> {
  server ??= await EmbeddedPostgres.startTemporary({ settings: { fsync: 'off', wal_level: 'logical' } });
  const url = server.url('postgres');
  const database = await new TestPostgres(url, () => Promise.resolve()).createDatabase();
  const fixture = await PgDeliveryFixture.open(database);
  const [delivery] = fixture.databases.deliveries();
  const { store } = delivery!;
  const withSql = store.log.read.bind(store.log);
  const countedRead: DeliveryLog['read'] = (...asked) => {
    reads.streamed--;
    return withSql(...asked);
  };
  const target = {
    store: Object.assign(Object.create(store), { log: { read: countedRead } }) as DeliveryStore,
    shards: delivery!.shards,
    handler: 'notify',
    clock: systemClock,
    eventBytesMax: 10_000,
    checkMs: 200,
    onCommitted: () => undefined,
    onError: (error: unknown) => process.stderr.write(`${String(error)}\n`),
  };
  const settings = { slot: `suite_${database.database}`, publication: 'suite', create: true };
  const feed = new ReplicationFeed(target, clientConfigOf(store)!, settings);
  store.log.read = async (...asked) => {
    await hasCaughtUp(feed, database.url);
    reads.streamed++;
    reads.all++;
    return feed.log.read(...asked);
  };
  await until(() => feed.state.kind === 'streaming');
  const close = fixture.close.bind(fixture);
  fixture.close = async () => {
    await feed.close();
    await close();
  };
  return fixture;
}

/** Resolves when the stream has delivered what was committed before the call. */
async function hasCaughtUp(feed: ReplicationFeed, url: string): Promise<void> {
  const [row] = await query<{ lsn: string }>(url, 'select pg_current_wal_insert_lsn()::text as lsn');
  // Something must follow it.
  await query(url, `select pg_logical_emit_message(true, 'suite', '')`);
  const lsn = parseLsn(row!.lsn);
  await until(() => {
    const { receivedLsn = 0n, isReleased = false } = feed.progress ?? {};
    return receivedLsn >= lsn && isReleased;
  });
}

/** Resolves when a condition is true, in time. */
async function until(condition: () => boolean): Promise<void> {
  await vi.waitUntil(condition, { timeout: 30_000, interval: 5 });
}

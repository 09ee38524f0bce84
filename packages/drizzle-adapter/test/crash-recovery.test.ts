import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FrameworkError } from '@framework/core';
import type { Cursor, DeliveryStore, SlotLease } from '@framework/core/adapter';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { seededRandom } from '@framework/testing';
import { decimal, firstShard } from '@framework/conformance';
import { TestPostgres } from '@framework/testing/postgres';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import pg from 'pg';
import { allSlots } from './fixtures/delivery-store.js';
import { EventWriter } from './fixtures/event-writer.js';
import { openRegistry, openSuite } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

const handler = 'mails';
// With these settings, writes that no commit waits for are not yet flushed to disk when the server crashes.
const settings = { fsync: 'off', wal_writer_delay: '10s' };
const roundCount = 4;
const patience = { timeout: 30_000, interval: 20 };

/** A separate server, which crashes. */
let server: TestPostgres;

beforeAll(async () => {
  const directory = await mkdtemp(join(tmpdir(), 'crashing-server-'));
  const postgres = await EmbeddedPostgres.start({ directory, settings });
  server = new TestPostgres(postgres.url('postgres'), async () => {
    await postgres.stop();
    await rm(directory, { recursive: true, force: true });
  });
});

afterAll(() => server.stop());

test.each([1, 2, 3])(
  'commits after a crash are read although their transaction numbers were seen before it (seed %i)',
  async (seed) => {
    const { url } = await server.createDatabase();
    const random = seededRandom(seed);
    const upTo = (most: number) => 1 + Math.floor(random() * most);
    const reader = await Reader.open(url);
    const written: string[] = [];
    let reusedCount = 0;
    for (let round = 0, version = 0; round < roundCount; round++) {
      for (let count = upTo(3); count > 0; count--) written.push(...(await writeOn(url, ++version)));
      if (random() < 0.5) await reader.save();
      await reader.read();
      const before = await burnTransactions(url, upTo(6));
      await reader.read();
      await crash(url);
      if (random() < 0.3) await reader.save();
      if (random() < 0.3) await reader.renew();
      const first = await nextTransaction(url);
      for (let count = upTo(6); count > 0; count--) written.push(...(await writeOn(url, ++version)));
      if (first < before) reusedCount++;
      await reader.read();
      if (random() < 0.5) await reader.save();
    }
    await reader.read();
    expect(new Set(reader.ids)).toEqual(new Set(written));
    // Otherwise nothing was tested.
    expect(reusedCount).toBeGreaterThan(0);
  },
);

test('an update is stale when the version that it read was lost in a crash under asynchronous commit', async () => {
  const { url, database } = await server.createDatabase();
  const account = await (await openSuite(url, {})).openAccount(firstShard);
  // The commit of this statement flushes everything committed before it to disk.
  await query(url, `alter database ${database} set synchronous_commit = off`);
  const [slow, fast] = [await openSuite(url, {}), await openSuite(url, {})];
  await slow.credit(account, '100');
  const crashed = Promise.withResolvers<void>();
  const seen: string[] = [];
  const late = slow.stage(async (plan) => {
    const read = await slow.accounts.getById(account.id);
    if (seen.push(read.balance) === 1) await crashed.promise;
    plan.update(read.credit('1'));
  });
  await vi.waitFor(() => expect(seen).toHaveLength(1));
  await crash(url);
  const again = (): Promise<unknown> => fast.credit(account, '7').catch((error: unknown) => error);
  await expect.poll(again, patience).toMatchObject({ version: 2, balance: decimal('7') });
  crashed.resolve();
  await late;
  expect(await fast.accounts.getById(account.id)).toMatchObject({ version: 3, balance: decimal('8') });
  expect(seen).toEqual([decimal('100'), decimal('7')]);
});

/** What a delivering process does: keeps a cursor in memory, and starts again from the saved one when it must. */
class Reader {
  readonly ids: string[] = [];
  readonly #store: DeliveryStore;
  #leases: readonly SlotLease[] = [];
  #cursor: Cursor = '';

  private constructor(store: DeliveryStore) {
    this.#store = store;
  }

  static async open(url: string): Promise<Reader> {
    const registry = openRegistry([{ group: 0, member: 0, url }], {});
    await registry.ready();
    const reader = new Reader(registry.deliveries()[0]!.store);
    await reader.#store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
    await reader.renew();
    return reader;
  }

  /** Keeps the cursor when it still has its leases. */
  async renew(): Promise<void> {
    const { leases } = await patiently(() => this.#store.leases.renew('reader', [handler], 60_000));
    const held = new Set(this.#leases.map(({ token }) => token));
    this.#leases = leases;
    if (leases.every(({ token }) => held.has(token))) return;
    const [{ cursor } = { cursor: '' }] = await this.#store.cursors.load(allSlots);
    this.#cursor = cursor;
  }

  async read(): Promise<void> {
    for (let more = true; more;) {
      try {
        const batch = await this.#store.log.read(allSlots, this.#cursor, 100);
        this.ids.push(...batch.events.map(({ id }) => id));
        ({ next: this.#cursor, more } = batch);
      } catch (error) {
        // Connections that the crash has broken are detected when they are used.
        if (!FrameworkError.is(error) || !error.retryable) throw error;
        if (error.code === 'history-changed') await this.renew();
      }
    }
  }

  async save(): Promise<void> {
    const moves = this.#leases.map((lease) => ({ ...lease, cursor: this.#cursor }));
    const lost = await patiently(() => this.#store.cursors.save(moves));
    if (lost.length > 0) await this.renew();
  }
}

/** Kills one of the server's processes, as a machine that is out of memory does; PostgreSQL then recovers by itself. */
async function crash(url: string): Promise<void> {
  const [victim, bystander] = [await connect(url), await connect(url)];
  const { rows } = await victim.query<{ pid: number }>('select pg_backend_pid() as pid');
  const noticed = new Promise<void>((resolve) => bystander.once('end', () => resolve()));
  process.kill(rows[0]!.pid, 'SIGKILL');
  await noticed;
  await vi.waitFor(() => query(url, 'select'), patience);
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

/** Uses up transaction numbers without a flush to disk, and returns the number that follows them. */
async function burnTransactions(url: string, count: number): Promise<bigint> {
  await query(
    url,
    `do $$ begin for i in 1..${count} loop perform pg_current_xact_id(); rollback; end loop; end $$`,
  );
  return nextTransaction(url);
}

async function nextTransaction(url: string): Promise<bigint> {
  const [row] = await query<{ xid: string }>(url, 'select pg_snapshot_xmax(pg_current_snapshot()) as xid');
  return BigInt(row!.xid);
}

async function writeOn(url: string, version: number): Promise<readonly string[]> {
  return (await EventWriter.connect(url)).write('a', version);
}

function patiently<T>(work: () => Promise<T>): Promise<T> {
  return vi.waitFor(work, patience);
}

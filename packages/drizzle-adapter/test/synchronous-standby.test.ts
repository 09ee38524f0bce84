// @module-tag postgres
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { decimal, firstShard } from '@framework/conformance';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { TestDatabase } from '@framework/testing/postgres';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { pgManager } from '../src/pg-transaction-manager.js';
import { openGrouped } from './fixtures/grouped-suite.js';
import { LimitedRole } from './fixtures/limited-role.js';
import { openSuite } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';
import { refusal } from './fixtures/refusal.js';

const patience = { timeout: 30_000, interval: 20 };
const settings = { 'statement-timeout-ms': 20_000 };
const hasty = { 'statement-timeout-ms': 1_000, 'acquisition-timeout-ms': 1_500 };
const ends = [
  ['cancelled', 'pg_cancel_backend'],
  ['terminated', 'pg_terminate_backend'],
] as const;

/** The condition for sessions whose commit waits, by a part of the statement. */
const waiting = (statement: string): string =>
  `application_name <> 'probe' and wait_event = 'SyncRep' and query like '%${statement}%'`;

describe('a commit that waits for a standby', () => {
  let directory: string;
  let server: EmbeddedPostgres;
  let url: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'synchronous-'));
    await chmod(directory, 0o755);
    server = await EmbeddedPostgres.start({
      directory,
      settings: { fsync: 'off' },
      installation: process.env['TEST_POSTGRES_INSTALLATION'],
    });
    await server.ensureDatabase('wallet');
    url = server.url('wallet');
    // The server says by a warning that a commit no longer waits.
    await query(url, 'alter database wallet set client_min_messages = error');
  });
  afterEach(() => bringBack());
  afterAll(async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  });

  /** Makes all commits wait for a standby that does not exist. */
  const cutOff = async (): Promise<void> => {
    await query(url, `alter system set synchronous_standby_names = 'absent'`);
    await query(url, 'select pg_reload_conf()');
    // The sessions learn of it at different times.
    await vi.waitFor(async () => {
      void query(probe(), `select pg_logical_emit_message(true, 'probe', '')`).catch(() => undefined);
      expect(await countOf("application_name = 'probe' and wait_event = 'SyncRep'")).toBeGreaterThan(0);
    }, patience);
  };
  /** Lets all commits end that wait, as a standby does that has received them. */
  const bringBack = async (): Promise<void> => {
    await query(url, 'alter system reset synchronous_standby_names');
    await query(url, 'select pg_reload_conf()');
    await vi.waitFor(async () => expect(await countOf("wait_event = 'SyncRep'")).toBe(0), patience);
  };
  const probe = (): string => `${url}?application_name=probe`;
  const countOf = async (condition: string): Promise<number> =>
    (await query(url, `select from pg_stat_activity where ${condition}`)).length;
  const untilWaits = (statement: string): Promise<void> =>
    vi.waitFor(async () => expect(await countOf(waiting(statement))).toBeGreaterThan(0), patience);
  /** Ends the wait of a write once it has begun. */
  const endWaitOf = async (statement: string, end: string): Promise<void> => {
    await untilWaits(statement);
    await query(url, `select ${end}(pid) from pg_stat_activity where ${waiting(statement)}`);
  };
  /** What happens first: the answer, or another commit that waits, with this statement. */
  const firstOf = (answer: Promise<unknown>, statement: string): Promise<string> =>
    Promise.race([answer.then(() => 'acknowledged'), untilWaits(statement).then(() => 'waits')]);
  const lookUp = 'from eventlog.events where action_id';

  test.each(ends)('is acknowledged only once the standby has it, even if the wait was %s', async (_, end) => {
    const suite = await openSuite(url, settings);
    const account = await suite.openAccount(firstShard);
    await cutOff();
    const credit = suite.credit(account, '5');
    await endWaitOf('update', end);
    expect(await firstOf(credit, lookUp)).toBe('waits');
    await bringBack();
    expect(await credit).toMatchObject({ version: 2, balance: decimal('5') });
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 2 });
  });

  test.each(ends)('is acknowledged with its group only once the standby has it (%s)', async (_, end) => {
    const suite = await openGrouped(url, settings);
    const accounts = [await suite.openAccount(firstShard), await suite.openAccount(firstShard)];
    await cutOff();
    const credits = Promise.all(
      accounts.map((account) => suite.stage((plan) => plan.update(account.credit('5')))),
    );
    await endWaitOf('update', end);
    expect(await firstOf(credits, lookUp)).toBe('waits');
    await bringBack();
    await credits;
    for (const { id } of accounts) expect(await suite.accounts.getById(id)).toMatchObject({ version: 2 });
  });

  test('is acknowledged to a repeat of its request only once the standby has it', async () => {
    const one = await openSuite(url, settings);
    const database = new TestDatabase(server.url('postgres'), 'wallet');
    const role = await LimitedRole.create(url);
    await role.grantIn(database);
    const other = await openSuite(role.urlOf(database), settings);
    const account = await one.openAccount(firstShard, { balance: decimal('10') });
    const key = { idempotencyKey: account.id.value };
    await cutOff();
    const withdrawal = one.withdraw(account, '5', key);
    await endWaitOf('update', 'pg_cancel_backend');
    const repeat = other.withdraw(account, '5', key);
    expect(await firstOf(repeat, 'from eventlog.idempotency_keys')).toBe('waits');
    await bringBack();
    expect(await repeat).toEqual(await withdrawal);
  });

  test('has an unknown outcome if its wait was cancelled and the standby stays away', async () => {
    const suite = await openSuite(url, hasty);
    const account = await suite.openAccount(firstShard);
    await cutOff();
    const credit = suite.credit(account, '5');
    const refused = refusal(credit);
    await endWaitOf('update', 'pg_cancel_backend');
    expect(await refused).toMatchObject({ code: 'commit-outcome-unknown' });
  });

  test('has an unknown outcome in a transaction of a script if its wait was cancelled', async () => {
    const suite = await openSuite(url, settings);
    await suite.openAccount(firstShard);
    const manager = pgManager(suite.fixture.databases.transactionManager(firstShard));
    await cutOff();
    const work = manager.inTransaction(() => manager.query({ text: 'update accounts set note = null' }));
    const refused = refusal(work);
    await endWaitOf('commit', 'pg_cancel_backend');
    expect(await refused).toMatchObject({ code: 'commit-outcome-unknown' });
  });
});

// @module-tag postgres
import type { MessageOutcome } from '@framework/testing';
import {
  type SuiteContext,
  type SuiteOptions,
  decimal,
  firstShard,
  otherDatabaseShard,
  principal,
} from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { type ProxiedDatabase, proxied } from './fixtures/proxied.js';

const key = { idempotencyKey: 'k-1' };
const settings = { 'statement-timeout-ms': 1_000, 'acquisition-timeout-ms': 3_000 };
/** Time limits that are much longer than a write takes on a busy machine. With them, only the search for a key limits the wait. */
const patient = { 'statement-timeout-ms': 60_000, 'acquisition-timeout-ms': 60_000 };
const searchWaitMs = 3_000;

describe('an idempotency key', () => {
  let database: TestDatabase;
  let other: TestDatabase;
  let proxy: ProxiedDatabase['proxy'];
  let suite: SuiteContext;
  beforeAll(async () => {
    [database, other] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  });
  afterAll(() => Promise.all([database.drop(), other.drop()]));

  const open = async (own: object = settings, options: SuiteOptions = {}): Promise<void> => {
    const through = await proxied(database);
    proxy = through.proxy;
    const registry = openRegistry([
      { group: 0, member: 0, url: through.url, settings: { ...own } },
      { group: 1, member: 0, url: other.url, settings: { ...own } },
    ]);
    await registry.ready();
    suite = suiteOn(registry, options);
    await suite.fixture.clear();
  };

  test.each<[title: string, verdict: MessageOutcome]>([
    ['after the commit arrived', 'forward-and-cut'],
    ['before the commit arrived', 'cut'],
  ])('makes a repeat harmless when the database was lost %s', async (_title, verdict) => {
    await open();
    const account = await suite.openAccount(firstShard, { balance: decimal('10') });
    let refusing: Promise<void> | undefined;
    proxy.judge = ({ direction, bytes }) => {
      if (direction !== 'to-server' || !bytes.includes('framework_write')) return 'forward';
      refusing ??= Promise.resolve().then(() => proxy.refuse());
      return verdict;
    };
    await expect(suite.withdraw(account, '10', key)).rejects.toMatchObject({
      code: 'commit-outcome-unknown',
    });
    await refusing;
    proxy.judge = () => 'forward';
    await proxy.accept();
    for (let repeat = 0; repeat < 2; repeat++)
      expect(await suite.withdraw(account, '10', key)).toMatchObject({ version: 2, balance: decimal('0') });
    expect(await suite.storedEvents()).toHaveLength(2);
    expect(await suite.fixture.keyCount(firstShard)).toBe(1);
  });

  test('has one effect when every second answer is lost', async () => {
    await open();
    const account = await suite.openAccount(firstShard, { balance: decimal('10') });
    let turn = 0;
    const verdicts: readonly MessageOutcome[] = ['cut', 'forward-and-cut', 'forward'];
    proxy.judge = ({ direction, bytes }) =>
      direction === 'to-server' && bytes.includes('framework_write') ? verdicts[turn++ % 3]! : 'forward';
    for (let index = 0; index < 6; index++)
      await suite.withdraw(account, '1', { idempotencyKey: `k-${index % 3}` });
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 4, balance: decimal('7') });
  });

  test('does not make a request wait long or repeatedly for a silent database that it does not need', async () => {
    await open(patient, { idempotency: { searchWaitMs } });
    const account = await suite.openAccount(otherDatabaseShard, { balance: decimal('10') });
    await suite.openAccount(firstShard);
    proxy.silence();
    const durationsMs: number[] = [];
    for (let index = 0; index < 5; index++) {
      const startedMs = performance.now();
      await suite.withdraw(account, '1', { idempotencyKey: `k-${index}` });
      durationsMs.push(performance.now() - startedMs);
    }
    expect(durationsMs[0]).toBeGreaterThan(0.9 * searchWaitMs);
    expect(durationsMs[0]).toBeLessThan(10 * searchWaitMs);
    expect(Math.min(...durationsMs.slice(1))).toBeLessThan(0.9 * searchWaitMs);
    proxy.resume();
    expect(await suite.accounts.getById(account.id)).toMatchObject({ balance: decimal('5') });
  });

  test('is found again on a database that was silent', async () => {
    await open();
    const account = await suite.openAccount(firstShard, { balance: decimal('10') });
    await suite.withdraw(account, '10', key);
    proxy.silence();
    const elsewhere = await suite.openAccount(otherDatabaseShard);
    await suite.withdraw(elsewhere, '0', { idempotencyKey: 'k-2' });
    proxy.resume();
    expect(await suite.withdraw(account, '10', key)).toMatchObject({ version: 2 });
    const { keys } = suite.fixture.databases.transactionManager(firstShard);
    const scope = { key: 'k-1', principal: principal.name, namespace: 'conformance.suite' };
    await expect.poll(() => keys.find(scope, 5_000).catch(() => undefined)).toBeDefined();
    await expect(suite.withdraw(elsewhere, '0', key)).rejects.toMatchObject({
      code: 'idempotency-key-reused',
    });
  });
});

import { type Account, type SuiteContext, decimal, firstShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { codeOf, groupMarker, lockRows, openGrouped } from './fixtures/grouped-suite.js';
import { type ProxiedDatabase, isSent, proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

/** A marker in every message that writes, in a group or alone. */
const writes = [groupMarker, 'framework_write'];
const accountCount = 8;
const hasty = { 'statement-timeout-ms': 1_000, 'acquisition-timeout-ms': 1_500 };
/** An unknown outcome is reported sooner than this, even on a busy machine; with the default settings, it would take longer. */
const hastyMs = 9_000;
/** Two of three writes or their answers are lost, so that it may take many attempts. */
const patient = { retry: { attemptsMax: 100, backoffMaxMs: 20 } };

describe('a group commit whose connection breaks', () => {
  let database: TestDatabase;
  let proxy: ProxiedDatabase['proxy'];
  let suite: SuiteContext;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  /** Opens the suite behind a proxy, and returns accounts with a balance of 10. */
  const open = async (settings: Readonly<Record<string, unknown>> = {}) => {
    const through = await proxied(database);
    proxy = through.proxy;
    suite = await openGrouped(through.url, settings);
    return Promise.all(
      Array.from({ length: accountCount }, () => suite.openAccount(firstShard, { balance: decimal('10') })),
    );
  };
  /** Credits 5 to each without reading it, so that all plans are queued at once and are sent together. */
  const creditTogether = (accounts: readonly Account[]): readonly Promise<void>[] =>
    accounts.map((account) => suite.stage((plan) => plan.update(account.credit('5'))));
  const storedOf = async (): Promise<readonly unknown[]> => {
    const accounts = await suite.accounts.findAll();
    return accounts.map(({ version, balance }) => [version, balance]);
  };

  test('while it waits for a lock is awaited, and all its actions succeed', async () => {
    const accounts = await open();
    const release = await lockRows(database, [accounts[3]!]);
    let questions = 0;
    let cut = false;
    proxy.judge = (message) => {
      if (isSent(message, 'pg_stat_activity where pid = $1')) questions++;
      if (cut || !isSent(message, groupMarker)) return 'forward';
      cut = true;
      return 'forward-and-cut';
    };
    const credits = Promise.all(creditTogether(accounts));
    await vi.waitFor(() => expect(questions).toBeGreaterThan(1), 30_000);
    await release();
    await credits;
    expect(await storedOf()).toEqual(accounts.map(() => [2, decimal('15')]));
    expect(await suite.storedEvents()).toHaveLength(2 * accountCount);
  });

  test('for good is reported as unknown, for each action, within a deadline', async () => {
    const accounts = await open(hasty);
    proxy.judge = (message) => {
      if (!isSent(message, groupMarker)) return 'forward';
      void proxy.refuse();
      return 'cut';
    };
    const startedMs = performance.now();
    const outcomes = await Promise.allSettled(creditTogether(accounts));
    expect(performance.now() - startedMs).toBeLessThan(hastyMs);
    expect(new Set(outcomes.map(codeOf))).toEqual(new Set(['commit-outcome-unknown']));
    const rows = await query(database.url, 'select distinct version::int from accounts');
    expect(rows).toEqual([{ version: 1 }]);
  });

  test('again and again has one effect for each successful action', async () => {
    const accounts = await open();
    loseTwoOfThree(proxy);
    const credits = [...accounts, ...accounts, ...accounts].map((account) =>
      suite.credit(account, '1', patient),
    );
    await Promise.all(credits);
    expect(await storedOf()).toEqual(accounts.map(() => [4, decimal('13')]));
    expect(await suite.storedEvents()).toHaveLength(4 * accountCount);
  });

  test('again and again has one effect for each idempotency key', async () => {
    const accounts = await open();
    loseTwoOfThree(proxy);
    const withdraw = (index: number): Promise<unknown> =>
      suite.withdraw(accounts[index]!, '10', { ...patient, idempotencyKey: `k-${index}` });
    const answers = await Promise.all([...accounts.keys(), ...accounts.keys()].map(withdraw));
    expect(answers).toMatchObject(answers.map(() => ({ version: 2, balance: decimal('0') })));
    expect(await storedOf()).toEqual(accounts.map(() => [2, decimal('0')]));
    expect(await suite.fixture.keyCount(firstShard)).toBe(accountCount);
  });
});

/** Loses one write, then the answer to one, then lets one pass, and so on. */
function loseTwoOfThree(proxy: ProxiedDatabase['proxy']): void {
  let turn = 0;
  const verdicts = ['cut', 'forward-and-cut', 'forward'] as const;
  proxy.judge = (message) =>
    writes.some((marker) => isSent(message, marker)) ? verdicts[turn++ % 3]! : 'forward';
}

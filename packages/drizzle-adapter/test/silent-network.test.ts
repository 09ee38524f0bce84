import type { FaultProxy } from '@framework/testing';
import { firstShard, once, otherDatabaseShard } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { isSent, proxied } from './fixtures/proxied.js';

/** A timeout that is enough for each statement of these tests, even on a busy machine. */
const statementTimeoutMs = 1_000;
const acquisitionTimeoutMs = 3_000;
/** How much later than the server the client gives up. */
const graceMs = 1_000;
/** The tolerance for a busy machine; a call that hangs takes much longer, if it ends at all. */
const toleranceMs = 15_000;
const settings = {
  'statement-timeout-ms': statementTimeoutMs,
  'acquisition-timeout-ms': acquisitionTimeoutMs,
  'maximum-pool-size': 1,
};

describe('a network that goes silent', () => {
  let database: TestDatabase;
  let other: TestDatabase;
  beforeAll(async () => {
    [database, other] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  });
  afterAll(() => Promise.all([database.drop(), other.drop()]));

  const open = async (own: object = {}) => {
    const { proxy, url } = await proxied(database);
    const registry = openRegistry([
      { group: 0, member: 0, url, settings: { ...settings, ...own } },
      { group: 1, member: 0, url: other.url, settings },
    ]);
    await registry.ready();
    return { proxy, suite: suiteOn(registry) };
  };

  test('makes a read fail in time, spares the other shard, and has no effect once it recovers', async () => {
    const { proxy, suite } = await open();
    const account = await suite.openAccount(firstShard);
    proxy.silence();
    const read = timed(() => suite.accounts.getById(account.id));
    const elsewhere = await suite.openAccount(otherDatabaseShard);
    expect(await suite.credit(elsewhere, '1')).toMatchObject({ version: 2 });
    const { error, durationMs } = await read;
    expect(error).toMatchObject({ code: 'shard-unavailable', shard: firstShard });
    expect(durationMs).toBeLessThan(statementTimeoutMs + graceMs + toleranceMs);
    proxy.resume();
    expect(await suite.accounts.getById(account.id)).toEqual(account);
  });

  test('makes an action fail in time, however many idle connections the pool has', async () => {
    const { proxy, suite } = await open({ 'maximum-pool-size': 4, 'idle-timeout': 0 });
    const account = await suite.openAccount(firstShard);
    const { databases } = suite.fixture;
    const sleep = () =>
      databases.transactionManager(firstShard).inTransaction(() => suite.accounts.getById(account.id));
    await Promise.all(Array.from({ length: 4 }, sleep));
    proxy.silence();
    const { error, durationMs } = await timed(() => suite.credit(account, '1'));
    expect(error).toMatchObject({ code: 'shard-unavailable', shard: firstShard });
    expect(durationMs).toBeLessThan(statementTimeoutMs + graceMs + toleranceMs);
    proxy.resume();
  });

  describe.each<[title: string, own: Partial<typeof settings>, fallSilent: (proxy: FaultProxy) => void]>([
    ['never answers', {}, (proxy) => proxy.silence()],
    ['accepts nothing but a login', { 'statement-timeout-ms': 60_000 }, dropStatements],
    ['accepts nothing but a login, with short timeouts', { 'acquisition-timeout-ms': 5_000 }, dropStatements],
  ])('(the server %s)', (_title, own, fallSilent) => {
    test('makes a caller that needs a new connection fail in time', async () => {
      const { proxy, suite } = await open(own);
      fallSilent(proxy);
      const { error, durationMs } = await timed(() => suite.openAccount(firstShard));
      expect(error).toMatchObject({ code: 'shard-unavailable', shard: firstShard });
      expect(durationMs).toBeLessThan({ ...settings, ...own }['acquisition-timeout-ms'] + toleranceMs);
      speak(proxy);
      await expect.poll(() => suite.openAccount(firstShard)).toMatchObject({ version: 1 });
    });

    test('makes one caller at a time wait, while others are refused at once', async () => {
      const { proxy, suite } = await open(own);
      const read = () => suite.accounts.findAll();
      fallSilent(proxy);
      await expect(read()).rejects.toMatchObject({ shard: firstShard });
      await expect(read()).rejects.toMatchObject({ code: 'shard-unavailable' });
      let isWaiting = true;
      const first = read().finally(() => (isWaiting = false));
      const others = Promise.allSettled(Array.from({ length: 10 }, read));
      const [refused] = await Promise.all([
        others,
        expect(first).rejects.toMatchObject({ code: 'shard-unavailable' }),
        others.then(() => expect(isWaiting).toBe(true)),
      ]);
      for (const outcome of refused) {
        expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'shard-unavailable' } });
      }
      speak(proxy);
      await expect.poll(read).toBeInstanceOf(Array);
    });
  });

  test('keeps refusing callers at once while one waits, when another fails that began to wait before', async () => {
    const { proxy, suite } = await open({ 'maximum-pool-size': 4 });
    const read = () => suite.accounts.findAll();
    const outcomes: string[] = [];
    const noted = (name: string): Promise<unknown> => read().catch(() => outcomes.push(name));
    proxy.silence();
    proxy.cut();
    const first = noted('first');
    const begunMs = performance.now();
    await expect.poll(() => performance.now() - begunMs).toBeGreaterThan(acquisitionTimeoutMs / 3);
    const second = noted('second');
    await first;
    const third = noted('third');
    await second;
    await noted('fourth');
    expect(outcomes).toEqual(['first', 'second', 'fourth']);
    await third;
    speak(proxy);
    await expect.poll(read).toBeInstanceOf(Array);
  });

  test('makes a transaction fail in time', async () => {
    const { proxy, suite } = await open();
    const account = await suite.openAccount(firstShard);
    const { error, durationMs } = await timed(() =>
      suite.fixture.databases.transactionManager(firstShard).inTransaction(async () => {
        proxy.silence();
        await suite.accounts.getById(account.id);
      }),
    );
    expect(error).toMatchObject({ code: 'shard-unavailable' });
    expect(durationMs).toBeLessThan(statementTimeoutMs + graceMs + toleranceMs);
  });

  test('leaves the outcome of a commit unknown, which is reported in time', async () => {
    const { proxy, suite } = await open();
    const account = await suite.openAccount(firstShard);
    const { error, durationMs } = await timed(() =>
      suite.stage((plan) => {
        plan.update(account.credit('1'));
        proxy.silence();
      }, once),
    );
    expect(error).toMatchObject({ code: 'commit-outcome-unknown', shard: firstShard });
    const searchMs = statementTimeoutMs + 2 * acquisitionTimeoutMs;
    expect(durationMs).toBeLessThan(statementTimeoutMs + graceMs + searchMs + toleranceMs);
  });
});

/** Ends the connections; new ones get no answer to the first statement, as from a pooler whose server is frozen. */
function dropStatements(proxy: FaultProxy): void {
  proxy.judge = (message) => (isSent(message, 'pg_stat_activity') ? 'drop' : 'forward');
  proxy.cut();
}

/** Ends any silence. */
function speak(proxy: FaultProxy): void {
  proxy.judge = () => 'forward';
  proxy.resume();
}

async function timed(
  work: () => Promise<unknown>,
): Promise<{ readonly error: unknown; readonly durationMs: number }> {
  const startedMs = performance.now();
  const error: unknown = await work().then(
    () => undefined,
    (failure: unknown) => failure,
  );
  return { error, durationMs: performance.now() - startedMs };
}

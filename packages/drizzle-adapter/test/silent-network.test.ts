import { abroad, home, once } from '@framework/testing/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { proxied } from './fixtures/proxied.js';

const statementTimeoutMs = 100;
const acquisitionTimeoutMs = 500;
/** How much later than the server the client gives up. */
const graceMs = 1_000;
/** What a busy machine may add. */
const toleranceMs = 1_500;
const settings = {
  'statement-timeout-ms': statementTimeoutMs,
  'acquisition-timeout-ms': acquisitionTimeoutMs,
  'maximum-pool-size': 1,
};

describe('a network that falls silent', () => {
  let database: TestDatabase;
  let other: TestDatabase;
  beforeAll(async () => {
    [database, other] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  });
  afterAll(() => Promise.all([database.drop(), other.drop()]));

  const open = async () => {
    const { proxy, url } = await proxied(database);
    const registry = openRegistry([
      { group: 0, member: 0, url, settings },
      { group: 1, member: 0, url: other.url, settings },
    ]);
    await registry.ready();
    return { proxy, suite: suiteOn(registry) };
  };

  it('rejects a read in time, leaves the other shard alone, and is forgotten when it is over', async () => {
    const { proxy, suite } = await open();
    const account = await suite.openAccount(home);
    proxy.silence();
    const read = timed(() => suite.accounts.getById(account.id));
    const elsewhere = await suite.openAccount(abroad);
    expect(await suite.credit(elsewhere, '1')).toMatchObject({ version: 2 });
    const { error, durationMs } = await read;
    expect(error).toMatchObject({ code: 'transient-storage', shard: home });
    expect(durationMs).toBeLessThan(statementTimeoutMs + graceMs + toleranceMs);
    proxy.resume();
    expect(await suite.accounts.getById(account.id)).toEqual(account);
  });

  it('rejects in time who needs a new connection', async () => {
    const { proxy, suite } = await open();
    proxy.silence();
    const { error, durationMs } = await timed(() => suite.openAccount(home));
    expect(error).toMatchObject({ code: 'shard-unavailable', shard: home });
    expect(durationMs).toBeLessThan(acquisitionTimeoutMs + toleranceMs);
    proxy.resume();
    expect(await suite.openAccount(home)).toMatchObject({ version: 1 });
  });

  it('rejects a transaction in time', async () => {
    const { proxy, suite } = await open();
    const account = await suite.openAccount(home);
    const { error, durationMs } = await timed(() =>
      suite.fixture.databases.transactionManager(home).inTransaction(async () => {
        proxy.silence();
        await suite.accounts.getById(account.id);
      }),
    );
    expect(error).toMatchObject({ code: 'transient-storage' });
    expect(durationMs).toBeLessThan(statementTimeoutMs + graceMs + toleranceMs);
  });

  it('leaves the outcome of a commit unknown, in time, while it lasts', async () => {
    const { proxy, suite } = await open();
    const account = await suite.openAccount(home);
    const { error, durationMs } = await timed(() =>
      suite.stage((plan) => {
        plan.update(account.credit('1'));
        proxy.silence();
      }, once),
    );
    expect(error).toMatchObject({ code: 'commit-outcome-unknown', shard: home });
    const searchMs = statementTimeoutMs + 2 * acquisitionTimeoutMs;
    expect(durationMs).toBeLessThan(statementTimeoutMs + graceMs + searchMs + toleranceMs);
  });
});

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

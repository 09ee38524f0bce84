// @module-tag postgres
import { AccessDeniedError, ActionExecutor, type ActionPolicy, type Id, systemClock } from '@framework/core';
import type { FaultProxy } from '@framework/testing';
import {
  Account,
  CreditAccountAction,
  type SuiteContext,
  Tag,
  firstShard,
  once,
} from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { PgFixture } from './fixtures/pg-fixture.js';
import { proxied } from './fixtures/proxied.js';

describe('the statements of a commit', () => {
  let database: TestDatabase;
  let proxy: FaultProxy;
  let suite: SuiteContext;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());
  beforeEach(async () => {
    const through = await proxied(database);
    proxy = through.proxy;
    const settings = { 'maximum-pool-size': 1 };
    const registry = openRegistry([{ group: 0, member: 0, url: through.url, settings }]);
    await registry.ready();
    suite = suiteOn(registry);
  });

  test('take one round trip, even when they are prepared', async () => {
    const account = await suite.openAccount(firstShard);
    expect(await roundTrips(proxy, () => suite.stage((plan) => plan.update(account.credit('1'))))).toBe(1);
    const opening = (): Promise<unknown> => suite.openAccount(firstShard);
    expect(await roundTrips(proxy, opening)).toBe(1);
    expect(await roundTrips(proxy, opening)).toBe(1);
  });

  test('take one round trip for several models with several events', async () => {
    const accounts = await suite.store(...accountsOf(5));
    const trips = await roundTrips(proxy, () =>
      suite.stage((plan) => {
        plan.updateAll(accounts.map((account) => account.credit('1').annotate('seen')));
        plan.add(Tag.of(firstShard, 'beside'));
      }),
    );
    expect(trips).toBe(1);
  });

  test('take one round trip when they are stale', async () => {
    const [first, second] = await suite.store(...accountsOf(2));
    await suite.credit(second!, '1');
    const stale = (): Promise<unknown> =>
      suite
        .stage((plan) => plan.updateAll([first!.credit('1'), second!.credit('1')]), once)
        .catch((error: unknown) => error);
    expect(await roundTrips(proxy, stale)).toBe(1);
  });

  test('take two round trips for an action that reads one model by its id', async () => {
    const account = await suite.openAccount(firstShard);
    expect(await roundTrips(proxy, () => suite.credit(account, '1'))).toBe(2);
  });

  test('take two round trips also if a policy reads the model of the action', async () => {
    const { accounts, databases, tags } = suite.fixture;
    class OwnCreditAction extends CreditAccountAction {
      override readonly policy: ActionPolicy<{ readonly accountId: Id<Account> }> = {
        authorize: async ({ principal, params: { accountId } }) => {
          const { owner } = await accounts.getById(accountId);
          if (owner !== principal.name) throw new AccessDeniedError('The account has another owner');
        },
      };
    }
    const executor = new ActionExecutor({
      namespace: 'statements',
      databases,
      repositories: [accounts, tags],
      actions: [new OwnCreditAction(systemClock, accounts)],
      requirePolicies: true,
    });
    const { id } = await suite.openAccount(firstShard, { owner: 'ada' });
    const crediting = (name: string): Promise<unknown> =>
      executor.execute({ name }, OwnCreditAction, { accountId: id, amount: '1' });
    expect(await roundTrips(proxy, () => crediting('ada'))).toBe(2);
    expect(await roundTrips(proxy, () => crediting('eve').catch(() => undefined))).toBe(1);
    await expect(crediting('eve')).rejects.toMatchObject({ code: 'access-denied' });
  });

  test('are prepared once for each shape, whatever the values', async () => {
    const accounts = await suite.store(...accountsOf(3));
    for (const account of accounts) await suite.credit(account, '1');
    const before = await prepared(suite);
    for (const account of accounts) await suite.credit(account, '2');
    await suite.store(...accountsOf(3));
    expect(await prepared(suite)).toEqual(before);
    expect(before.filter((name) => name.startsWith('framework_write'))).toHaveLength(2);
    expect(before.filter((name) => name.startsWith('framework_read'))).toHaveLength(1);
    await suite.store(...accountsOf(4));
    expect(await prepared(suite)).toHaveLength(before.length + 1);
  });

  test('have a text that does not depend on the values', async () => {
    const hostile = `'; drop table accounts; --`;
    const [account] = await suite.store(
      Account.open(firstShard, systemClock.now(), {
        owner: hostile,
        note: hostile,
        settings: { [hostile]: hostile },
      }),
    );
    expect(await suite.accounts.findByOwner(hostile)).toEqual([account]);
  });
});

function accountsOf(count: number): readonly Account[] {
  return Array.from({ length: count }, () => Account.open(firstShard, systemClock.now()));
}

/** Counts the round trips of the work: how often the client sends something after the server has sent something. */
async function roundTrips(proxy: FaultProxy, work: () => Promise<unknown>): Promise<number> {
  let count = 0;
  let speaker: 'to-server' | 'to-client' = 'to-client';
  proxy.judge = ({ direction }) => {
    if (direction === 'to-server' && speaker === 'to-client') count++;
    speaker = direction;
    return 'forward';
  };
  await work();
  proxy.judge = () => 'forward';
  return count;
}

/** The names of the statements that are prepared on the only connection. */
async function prepared({ fixture }: SuiteContext): Promise<readonly string[]> {
  const db = new PgFixture(fixture.databases).accounts.db(firstShard);
  const { rows } = await db.execute<{ name: string }>(
    sql`select name from pg_prepared_statements where name like 'framework%' order by name`,
  );
  return rows.map(({ name }) => name);
}

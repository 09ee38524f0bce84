// @module-tag postgres
import { systemClock } from '@framework/core';
import { Account, Tag, decimal, firstShard, once } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { accountsOf, codeOf, groupMarker, openGrouped, queueTogether } from './fixtures/grouped-suite.js';
import { proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

describe('group commit', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  test('lets 64 deposits into one account succeed at the first attempt', async () => {
    const suite = await openGrouped(database.url);
    const account = await suite.openAccount(firstShard);
    const results = await Promise.all(Array.from({ length: 64 }, () => suite.credit(account, '0.01', once)));
    expect(results.map(({ version }) => version).toSorted((one, other) => one - other)).toEqual(
      Array.from({ length: 64 }, (_unused, index) => index + 2),
    );
    expect(await suite.accounts.getById(account.id)).toMatchObject({ version: 65, balance: decimal('0.64') });
    const events = await suite.storedEvents();
    expect(events.map(({ modelVersion }) => modelVersion)).toEqual(
      Array.from({ length: 65 }, (_unused, index) => index + 1),
    );
    expect(events.at(-1)?.payload).toMatchObject({ newBalance: decimal('0.64') });
    const { early } = (
      await query<{ early: number }>(
        database.url,
        'select count(*)::int as early from eventlog.events where early_xid',
      )
    )[0]!;
    expect(early).toBe(0);
  });

  test('writes successive versions of one account by one update of its row', async () => {
    const suite = await openGrouped(database.url);
    const account = await suite.openAccount(firstShard);
    const executions = await queueTogether(suite, () =>
      Array.from({ length: 20 }, () => suite.credit(account, '1', once)),
    );
    await Promise.all(executions);
    const [row] = await query<{ xids: number; events: number }>(
      database.url,
      `select count(distinct xid)::int as xids, count(*)::int as events
       from eventlog.events where model_id = $1 and model_version > 1`,
      [account.id.value],
    );
    expect(row).toEqual({ xids: 1, events: 20 });
  });

  test('commits a lone plan as a single action', async () => {
    const through = await proxied(database);
    const suite = await openGrouped(through.url);
    const account = await suite.openAccount(firstShard);
    const sent: string[] = [];
    through.proxy.judge = ({ direction, bytes }) => {
      if (direction === 'to-server') sent.push(bytes.toString('latin1'));
      return 'forward';
    };
    await suite.credit(account, '1');
    await suite.credit(account, '1');
    expect(sent.join('\n')).toContain('framework_write');
    expect(sent.join('\n')).not.toContain(groupMarker);
    expect(sent.filter((text) => text.includes('framework_'))).toHaveLength(4);
  });

  test('does not let a stale plan affect the others', async () => {
    const suite = await openGrouped(database.url);
    const accounts = await suite.store(...accountsOf(4));
    const stale = accounts[1]!.variant({ version: 7 });
    const executions = await queueTogether(suite, () =>
      accounts.map((account, index) =>
        suite.stage((plan) => plan.update((index === 1 ? stale : account).credit('1')), once),
      ),
    );
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(codeOf)).toEqual(['done', 'stale-record', 'done', 'done']);
    expect(outcomes[1]).toMatchObject({ reason: { id: stale.id.value, expectedVersion: 7 } });
    const stored = await suite.accounts.findAllByIds(accounts.map(({ id }) => id));
    expect(stored.map(({ version }) => version)).toEqual([2, 1, 2, 2]);
    expect((await suite.storedEvents()).filter(({ modelId }) => modelId === stale.id.value)).toHaveLength(1);
  });

  test('does not let a stale plan of several rows affect the others', async () => {
    const suite = await openGrouped(database.url);
    const accounts = await suite.store(...accountsOf(6));
    const plans = [
      accounts.slice(0, 2),
      [accounts[2]!, accounts[3]!.variant({ version: 7 })],
      accounts.slice(4),
    ];
    const start = (): readonly Promise<void>[] =>
      plans.map((own) =>
        suite.stage((plan) => {
          plan.add(Tag.of(firstShard, 'beside'));
          plan.updateAll(own.map((account) => account.credit('1')));
        }, once),
      );
    const executions = await queueTogether(suite, start, 6);
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(codeOf)).toEqual(['done', 'stale-record', 'done']);
    const stored = await suite.accounts.findAllByIds(accounts.map(({ id }) => id));
    expect(stored.map(({ version }) => version)).toEqual([2, 2, 1, 1, 2, 2]);
    expect(await suite.fixture.tags.count()).toBe(2);
  });

  test('fails only the plan that adds an id that exists', async () => {
    const suite = await openGrouped(database.url);
    const [there] = await suite.store(Account.open(firstShard, systemClock.now()));
    const again = there.variant({ version: 0 });
    const executions = await queueTogether(suite, () =>
      Array.from({ length: 8 }, (_unused, index) =>
        suite.stage(
          (plan) =>
            plan.add(index === 3 ? again : Account.open(firstShard, systemClock.now(), { owner: 'new' })),
          once,
        ),
      ),
    );
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(codeOf)).toEqual([
      'done',
      'done',
      'done',
      'stale-record',
      'done',
      'done',
      'done',
      'done',
    ]);
    expect(await suite.accounts.countByOwner('new')).toBe(7);
  });

  test('applies each idempotency key once, whatever the group', async () => {
    const suite = await openGrouped(database.url);
    const accounts = await suite.store(...accountsOf(4, '10'));
    const keys = ['a', 'b', 'a', 'c'];
    const taken = await suite.withdraw(accounts[0]!, '1', { idempotencyKey: 'a' });
    const executions = await queueTogether(suite, () =>
      keys.map((idempotencyKey, index) =>
        suite.withdraw(accounts[index === 2 ? 0 : index]!, '1', {
          idempotencyKey,
          checkKeyEverywhere: false,
          ...once,
        }),
      ),
    );
    const [first, second, third, fourth] = await Promise.all(executions);
    expect([first, third]).toEqual([taken, taken]);
    expect([second, fourth]).toMatchObject([{ version: 2 }, { version: 2 }]);
    expect(await suite.fixture.keyCount(firstShard)).toBe(3);
    expect(await suite.accounts.getById(accounts[0]!.id)).toMatchObject({ version: 2 });
  });

  test('stores no key of a stale plan, which does not affect the others', async () => {
    const suite = await openGrouped(database.url);
    const accounts = await suite.store(...accountsOf(4));
    const stale = accounts[1]!.variant({ version: 7 });
    const executions = await queueTogether(suite, () =>
      accounts.map((account, index) =>
        suite.stage((plan) => plan.update((index === 1 ? stale : account).credit('1')), {
          ...once,
          idempotencyKey: `k-${index}`,
          checkKeyEverywhere: false,
        }),
      ),
    );
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(codeOf)).toEqual(['done', 'stale-record', 'done', 'done']);
    expect(await suite.fixture.keyCount(firstShard)).toBe(3);
  });

  test('loses nothing and causes no deadlock when two processes write the same accounts', async () => {
    const suites = [await openGrouped(database.url), await openGrouped(database.url)];
    const accounts = await suites[0]!.store(...accountsOf(10));
    const before = await deadlocks(database.url);
    const retry = { attemptsMax: 100, backoffMaxMs: 20 };
    const count = 200;
    await Promise.all(
      suites.flatMap((suite) =>
        Array.from({ length: count }, async (_unused, index) => {
          const [one, other] = [accounts[index % 10]!, accounts[(index * 7 + 3) % 10]!];
          if (index % 4 > 0 || one === other) return suite.credit(one, '1', { retry });
          return suite.stage(
            async (plan) => {
              const read = [await suite.accounts.getById(one.id), await suite.accounts.getById(other.id)];
              plan.updateAll(read.map((account, place) => account.credit(place === 0 ? '1' : '0')));
            },
            { retry },
          );
        }),
      ),
    );
    const stored = await suites[0]!.accounts.findAll();
    const total = stored.reduce((sum, { balance }) => sum + Number(balance), 0);
    expect(total).toBe(2 * count);
    for (const { id, version } of stored) {
      const { log } = suites[0]!.fixture.databases.transactionManager(firstShard);
      const { items } = await log.findByModel({ name: 'Account', id: id.value }, { limit: 1_000 });
      expect(items.map(({ modelVersion }) => modelVersion)).toEqual(
        Array.from({ length: version }, (_each, index) => index + 1),
      );
    }
    expect(await deadlocks(database.url)).toBe(before);
  });
});

async function deadlocks(url: string): Promise<number> {
  const [row] = await query<{ deadlocks: number }>(
    url,
    'select deadlocks::int from pg_stat_database where datname = current_database()',
  );
  return row?.deadlocks ?? 0;
}

import { type ChangeSet, FrameworkException, systemClock } from '@framework/core';
import { Account, type SuiteContext, Tag, decimal, home, once } from '@framework/testing/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { changeSetOf } from './fixtures/persist.js';
import type { PgAccountRepository } from './fixtures/pg-account-repository.js';
import { type ProxiedDatabase, proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

/** In every message that sends a group. */
const groupMarker = 'framework_group';
/** How many writes that wait for locks a writer leaves aside, with the one that it waits for when there is no more place. */
const heldWritesMax = 9;

describe('grouped commit', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  const open = async (url = database.url): Promise<SuiteContext> => {
    const registry = openRegistry([{ group: 0, member: 0, url }]);
    await registry.ready();
    const suite = suiteOn(registry, { groupCommit: true });
    await suite.fixture.clear();
    return suite;
  };

  /** Holds the rows of accounts, so that the next writes of them wait. */
  const holding = async (...accounts: readonly Account[]): Promise<() => Promise<void>> => {
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query('begin');
    await holder.query('select from accounts where id = any($1) for update', [
      accounts.map(({ id }) => id.value),
    ]);
    return async () => void (await holder.query('rollback'));
  };

  /**
   * Starts executions while the writer is busy, and lets it go on when all of them have staged their accounts.
   *
   * It is busy for as long as that takes: a write that is held is left aside soon, but there are places for some only.
   */
  const queued = async <T>(
    suite: SuiteContext,
    start: () => readonly Promise<T>[],
    stagedCount?: number,
  ): Promise<readonly Promise<T>[]> => {
    const busy = await suite.store(...accountsOf(heldWritesMax));
    const release = await holding(...busy);
    const held: Promise<unknown>[] = [];
    for (const account of busy) {
      held.push(suite.credit(account, '1', once));
      await waitForLocks(database.url, held.length);
    }
    const encode = vi.spyOn(suite.accounts, 'encode');
    const executions = start();
    for (const execution of executions) execution.catch(() => undefined);
    await vi.waitFor(() => expect(encode).toHaveBeenCalledTimes(stagedCount ?? executions.length), 5_000);
    await release();
    await Promise.all(held);
    return executions;
  };

  it('lets 64 deposits into one account succeed at the first attempt', async () => {
    const suite = await open();
    const account = await suite.openAccount(home);
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

  it('writes successive versions of one account by one update of its row', async () => {
    const suite = await open();
    const account = await suite.openAccount(home);
    const executions = await queued(suite, () =>
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

  it('takes the path of a single action for a lone plan', async () => {
    const through = await proxied(database);
    const suite = await open(through.url);
    const account = await suite.openAccount(home);
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

  it('does not let a stale plan disturb the others', async () => {
    const suite = await open();
    const accounts = await suite.store(...accountsOf(4));
    const stale = accounts[1]!.variant({ version: 7 });
    const executions = await queued(suite, () =>
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

  it('does not let a stale plan of several rows disturb the others', async () => {
    const suite = await open();
    const accounts = await suite.store(...accountsOf(6));
    const plans = [
      accounts.slice(0, 2),
      [accounts[2]!, accounts[3]!.variant({ version: 7 })],
      accounts.slice(4),
    ];
    const start = (): readonly Promise<void>[] =>
      plans.map((own) =>
        suite.stage((plan) => {
          plan.add(Tag.of(home, 'beside'));
          plan.updateAll(own.map((account) => account.credit('1')));
        }, once),
      );
    const executions = await queued(suite, start, 6);
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(codeOf)).toEqual(['done', 'stale-record', 'done']);
    const stored = await suite.accounts.findAllByIds(accounts.map(({ id }) => id));
    expect(stored.map(({ version }) => version)).toEqual([2, 2, 1, 1, 2, 2]);
    expect(await suite.fixture.tags.count()).toBe(2);
  });

  it('lets only the culprit fail when a constraint is violated', async () => {
    const suite = await open();
    const [there] = await suite.store(Account.open(home, systemClock.now()));
    const again = there.variant({ version: 0 });
    const executions = await queued(suite, () =>
      Array.from({ length: 8 }, (_unused, index) =>
        suite.stage(
          (plan) => plan.add(index === 3 ? again : Account.open(home, systemClock.now(), { owner: 'new' })),
          once,
        ),
      ),
    );
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(codeOf)).toEqual([
      'done',
      'done',
      'done',
      'constraint-violation',
      'done',
      'done',
      'done',
      'done',
    ]);
    expect(await suite.accounts.countByOwner('new')).toBe(7);
  });

  it.each([
    ['before', 'cut'],
    ['after', 'forward-and-cut'],
  ] as const)(
    'has one effect for each when the connection is lost %s a group arrived',
    async (_when, verdict) => {
      const through = await proxied(database);
      const suite = await open(through.url);
      const accounts = await suite.store(...accountsOf(5));
      const wasCut = cutOnce(through.proxy, groupMarker, verdict);
      const executions = await queued(suite, () => accounts.map((account) => suite.credit(account, '1')));
      await Promise.all(executions);
      expect(wasCut()).toBe(true);
      const stored = await suite.accounts.findAllByIds(accounts.map(({ id }) => id));
      expect(stored.map(({ version, balance }) => [version, balance])).toEqual(
        accounts.map(() => [2, decimal('1')]),
      );
      const events = (await suite.storedEvents()).filter(({ modelVersion }) => modelVersion === 2);
      // Those of the five accounts, and of those that kept the writer busy.
      expect(events).toHaveLength(5 + heldWritesMax);
    },
  );

  it('tells of a stale plan truthfully when the connection is lost after its group arrived', async () => {
    const through = await proxied(database);
    const suite = await open(through.url);
    const accounts = await suite.store(...accountsOf(3));
    const stale = accounts[1]!.variant({ version: 7 });
    const wasCut = cutOnce(through.proxy, groupMarker, 'forward-and-cut');
    const executions = await queued(suite, () =>
      accounts.map((account, index) =>
        suite.stage((plan) => plan.update((index === 1 ? stale : account).credit('1')), once),
      ),
    );
    const outcomes = await Promise.allSettled(executions);
    expect(wasCut()).toBe(true);
    expect(outcomes.map(codeOf)).toEqual(['done', 'transient-storage', 'done']);
    const stored = await suite.accounts.findAllByIds(accounts.map(({ id }) => id));
    expect(stored.map(({ version }) => version)).toEqual([2, 1, 2]);
  });

  it.each([
    ['a row', (account: Account) => ['select from accounts where id = $1 for update', account.id.value]],
    [
      'an idempotency key',
      () => [
        `insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
         values ($1, 'auditor', 'conformance.suite', gen_random_uuid(), 'Held', 'print', now() + interval '1 day')`,
        'k-3',
      ],
    ],
  ] as const)('lets only the plan wait that needs %s which somebody holds', async (_what, hold) => {
    const suite = await open();
    const accounts = await suite.store(...accountsOf(10));
    const held = accounts[3]!;
    const holder = new pg.Client({ connectionString: database.url });
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query('begin');
    const [statement, value] = hold(held);
    await holder.query(statement!, [value]);
    const credit = (account: Account, index: number): Promise<Account> =>
      suite.withdraw(account, '0', {
        ...once,
        idempotencyKey: `k-${index}`,
        idempotencyKeySearch: 'nowhere',
      });
    const executions = await queued(suite, () => accounts.map(credit));
    let isDone = false;
    void executions[3]!.then(() => (isDone = true));
    const startedMs = performance.now();
    await Promise.all(executions.filter((_execution, index) => index !== 3));
    // A lock timeout, and some time for slow machines.
    expect(performance.now() - startedMs).toBeLessThan(2_000);
    const later = accounts.filter((account) => account !== held);
    await Promise.all(later.map((account) => suite.credit(account, '1', once)));
    expect(isDone).toBe(false);
    await holder.query('rollback');
    expect(await executions[3]).toMatchObject({ version: 2 });
  });

  it('leaves no lock timeout behind on the connection', async () => {
    const suite = await open();
    const accounts = await suite.store(...accountsOf(3));
    await Promise.all(await queued(suite, () => accounts.map((account) => suite.credit(account, '1', once))));
    const repository = suite.accounts as PgAccountRepository;
    const { rows } = await repository.db(home).execute('show lock_timeout');
    expect(rows).toEqual([{ lock_timeout: '0' }]);
  });

  it('keeps rows of one table out of groups when the database has refused its types, and no others', async () => {
    const suite = await open();
    await query(
      database.url,
      "alter table tags alter column label type bytea using convert_to(label, 'UTF8')",
    );
    onTestFinished(async () => {
      await query(
        database.url,
        "alter table tags alter column label type text using convert_from(label, 'UTF8')",
      );
    });
    const manager = suite.fixture.databases.transactionManager(home);
    const group = (): readonly ChangeSet[] => [
      changeSetOf(suite.accounts, Account.open(home, systemClock.now()).variant({ version: 1 })),
      changeSetOf(suite.fixture.tags, tagOf('a')),
    ];
    await expect(manager.persistAll(group())).rejects.toMatchObject({ code: 'storage-failure' });
    expect(await manager.persistAll(group())).toEqual(['written', 'alone']);
  });

  it('keeps no rows out of groups because a trigger has failed', async () => {
    const suite = await open();
    await query(
      database.url,
      `create function fail_tag() returns trigger language plpgsql as $$
         begin if new.label = 'bad' then perform no_such_function(); end if; return new; end $$`,
    );
    await query(
      database.url,
      'create trigger fail_tag before insert on tags for each row execute function fail_tag()',
    );
    onTestFinished(() => query(database.url, 'drop function fail_tag cascade').then(() => undefined));
    const manager = suite.fixture.databases.transactionManager(home);
    const group = (label: string): readonly ChangeSet[] =>
      ['good', label].map((each) => changeSetOf(suite.fixture.tags, tagOf(each)));
    await expect(manager.persistAll(group('bad'))).rejects.toMatchObject({ code: 'storage-failure' });
    expect(await manager.persistAll(group('good'))).toEqual(['written', 'written']);
  });

  it('keeps idempotency keys: one effect for each key, whatever the group', async () => {
    const suite = await open();
    const accounts = await suite.store(...accountsOf(4, '10'));
    const keys = ['a', 'b', 'a', 'c'];
    const taken = await suite.withdraw(accounts[0]!, '1', { idempotencyKey: 'a' });
    const executions = await queued(suite, () =>
      keys.map((idempotencyKey, index) =>
        suite.withdraw(accounts[index === 2 ? 0 : index]!, '1', {
          idempotencyKey,
          idempotencyKeySearch: 'nowhere',
          ...once,
        }),
      ),
    );
    const [first, second, third, fourth] = await Promise.all(executions);
    expect([first, third]).toEqual([taken, taken]);
    expect([second, fourth]).toMatchObject([{ version: 2 }, { version: 2 }]);
    expect(await suite.fixture.keyCount(home)).toBe(3);
    expect(await suite.accounts.getById(accounts[0]!.id)).toMatchObject({ version: 2 });
  });

  it('leaves no key of a stale plan, and does not let it disturb the others', async () => {
    const suite = await open();
    const accounts = await suite.store(...accountsOf(4));
    const stale = accounts[1]!.variant({ version: 7 });
    const executions = await queued(suite, () =>
      accounts.map((account, index) =>
        suite.stage((plan) => plan.update((index === 1 ? stale : account).credit('1')), {
          ...once,
          idempotencyKey: `k-${index}`,
          idempotencyKeySearch: 'nowhere',
        }),
      ),
    );
    const outcomes = await Promise.allSettled(executions);
    expect(outcomes.map(codeOf)).toEqual(['done', 'stale-record', 'done', 'done']);
    expect(await suite.fixture.keyCount(home)).toBe(3);
  });

  it('loses nothing and deadlocks nobody when two processes write the same accounts', async () => {
    const suites = [await open(), await open()];
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
      const { log } = suites[0]!.fixture.databases.transactionManager(home);
      const { items } = await log.findByModel({ name: 'Account', id: id.value }, { limit: 1_000 });
      expect(items.map(({ modelVersion }) => modelVersion)).toEqual(
        Array.from({ length: version }, (_each, index) => index + 1),
      );
    }
    expect(await deadlocks(database.url)).toBe(before);
  });
});

/** A tag as it is stored first. */
function tagOf(label: string): Tag {
  const { id, state } = Tag.of(home, label);
  return new Tag({ id, state, label, version: 1 });
}

function accountsOf(count: number, balance = '0'): readonly Account[] {
  return Array.from({ length: count }, () =>
    Account.open(home, systemClock.now(), { balance: decimal(balance) }),
  );
}

function codeOf(outcome: PromiseSettledResult<unknown>): string {
  if (outcome.status === 'fulfilled') return 'done';
  return FrameworkException.find(outcome.reason)?.code ?? String(outcome.reason);
}

/** Waits until some session of the database waits for a row. */
async function waitForLocks(url: string, count: number): Promise<void> {
  await vi.waitFor(async () => {
    const rows = await query(
      url,
      `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
    );
    expect(rows.length).toBe(count);
  }, 5_000);
}

async function deadlocks(url: string): Promise<number> {
  const [row] = await query<{ deadlocks: number }>(
    url,
    'select deadlocks::int from pg_stat_database where datname = current_database()',
  );
  return row?.deadlocks ?? 0;
}

/** Gives the verdict on the first passage to the server that holds the marker; tells whether there was one. */
function cutOnce(
  proxy: ProxiedDatabase['proxy'],
  marker: string,
  verdict: 'cut' | 'forward-and-cut',
): () => boolean {
  let cut = false;
  proxy.judge = ({ direction, bytes }) => {
    if (cut || direction !== 'to-server' || !bytes.includes(marker)) return 'forward';
    cut = true;
    return verdict;
  };
  return () => cut;
}

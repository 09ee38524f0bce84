import { systemClock } from '@framework/core';
import type { ChangeSet } from '@framework/core/adapter';
import { Account, Tag, decimal, firstShard, once } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  accountsOf,
  codeOf,
  countEnded,
  groupMarker,
  heldWritesMax,
  lockRows,
  openGrouped,
  queueTogether,
} from './fixtures/grouped-suite.js';
import { lockWaiters } from './fixtures/lock-waiters.js';
import { changeSetOf } from './fixtures/persist.js';
import type { PgAccountRepository } from './fixtures/pg-account-repository.js';
import { cutOnce, proxied } from './fixtures/proxied.js';
import { query } from './fixtures/query.js';

/** A write that waits for a lock waits for as long as it is held, so that no other write gets ahead because this one gave up. */
const patient = { 'statement-timeout-ms': 120_000 };
const patientQueue = { queueWaitMs: 120_000 };
/** How soon all other plans are written, even on a busy machine. */
const soonMs = 20_000;

describe('group commit', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  test.each([
    ['before', 'cut'],
    ['after', 'forward-and-cut'],
  ] as const)(
    'has one effect per action when the connection is lost %s a group arrived',
    async (_when, verdict) => {
      const through = await proxied(database);
      const suite = await openGrouped(through.url);
      const accounts = await suite.store(...accountsOf(5));
      const wasCut = cutOnce(through.proxy, groupMarker, verdict);
      const executions = await queueTogether(suite, () =>
        accounts.map((account) => suite.credit(account, '1')),
      );
      await Promise.all(executions);
      expect(wasCut()).toBe(true);
      const stored = await suite.accounts.findAllByIds(accounts.map(({ id }) => id));
      expect(stored.map(({ version, balance }) => [version, balance])).toEqual(
        accounts.map(() => [2, decimal('1')]),
      );
      const events = (await suite.storedEvents()).filter(({ modelVersion }) => modelVersion === 2);
      // The events of the five accounts, and of the writes that kept the writer busy.
      expect(events).toHaveLength(5 + heldWritesMax);
    },
  );

  test('reports a stale plan truthfully when the connection is lost after its group arrived', async () => {
    const through = await proxied(database);
    const suite = await openGrouped(through.url);
    const accounts = await suite.store(...accountsOf(3));
    const stale = accounts[1]!.variant({ version: 7 });
    const wasCut = cutOnce(through.proxy, groupMarker, 'forward-and-cut');
    const executions = await queueTogether(suite, () =>
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

  test.each([
    ['a row', (account: Account) => ['select from accounts where id = $1 for update', account.id.value]],
    [
      'an idempotency key',
      () => [
        `insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
         values ($1, 'auditor', 'conformance.suite', gen_random_uuid(), 'Held', 'print', now() + interval '1 day')`,
        'k-3',
      ],
    ],
  ] as const)('delays only the plan that needs %s held by another session', async (_what, hold) => {
    const suite = await openGrouped(database.url, patient, patientQueue);
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
        checkKeyEverywhere: false,
      });
    const executions = await queueTogether(suite, () => accounts.map(credit));
    const waitingEnded = countEnded([executions[3]!]);
    const startedMs = performance.now();
    await Promise.all(executions.filter((_execution, index) => index !== 3));
    expect(performance.now() - startedMs).toBeLessThan(soonMs);
    const later = accounts.filter((account) => account !== held);
    await Promise.all(later.map((account) => suite.credit(account, '1', once)));
    expect(waitingEnded()).toBe(0);
    await holder.query('rollback');
    expect(await executions[3]).toMatchObject({ version: 2 });
  });

  test('delays no other plan while more rows are locked than there are places to wait for them', async () => {
    const suite = await openGrouped(database.url, patient, patientQueue);
    const [held, free] = [await suite.store(...accountsOf(12)), await suite.store(...accountsOf(12))];
    const release = await lockRows(database, held);
    const waiting = held.map((account) => suite.credit(account, '1', once));
    const waitingEnded = countEnded(waiting);
    const startedMs = performance.now();
    for (let round = 0; round < 5; round++)
      await Promise.all(free.map((account) => suite.credit(account, '1', once)));
    expect(performance.now() - startedMs).toBeLessThan(soonMs);
    expect(waitingEnded()).toBe(0);
    await release();
    expect((await Promise.all(waiting)).map(({ version }) => version)).toEqual(held.map(() => 2));
  });

  test('does not delay plans that it writes one by one, due to a check constraint, while other rows are locked', async () => {
    const suite = await openGrouped(database.url, patient, patientQueue);
    await query(database.url, 'alter table accounts add constraint positive check (balance >= 0)');
    onTestFinished(
      async () => void (await query(database.url, 'alter table accounts drop constraint positive')),
    );
    const [held, free] = [await suite.store(...accountsOf(6)), await suite.store(...accountsOf(2))];
    const release = await lockRows(database, held);
    const waiting = held.map((account) => suite.credit(account, '1', once));
    const waitingEnded = countEnded(waiting);
    await vi.waitFor(async () => expect(await lockWaiters(database.url)).toBeGreaterThanOrEqual(5), 30_000);
    const startedMs = performance.now();
    await Promise.all(
      free.flatMap((account) => Array.from({ length: 10 }, () => suite.credit(account, '1', once))),
    );
    expect(performance.now() - startedMs).toBeLessThan(soonMs);
    expect(waitingEnded()).toBe(0);
    await release();
    expect((await Promise.all(waiting)).map(({ version }) => version)).toEqual(held.map(() => 2));
    const stored = await suite.accounts.findAllByIds(free.map(({ id }) => id));
    expect(stored.map(({ balance }) => balance)).toEqual([decimal('10'), decimal('10')]);
  });

  test('leaves no lock timeout behind on the connection', async () => {
    const suite = await openGrouped(database.url);
    const accounts = await suite.store(...accountsOf(3));
    await Promise.all(
      await queueTogether(suite, () => accounts.map((account) => suite.credit(account, '1', once))),
    );
    const repository = suite.accounts as PgAccountRepository;
    const { rows } = await repository.db(firstShard).execute('show lock_timeout');
    expect(rows).toEqual([{ lock_timeout: '0' }]);
  });

  test('excludes from groups the rows of a table whose column has another type than declared, and no others', async () => {
    const suite = await openGrouped(database.url);
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
    const manager = suite.fixture.databases.transactionManager(firstShard);
    const group = (): readonly ChangeSet[] => [
      changeSetOf(suite.accounts, Account.open(firstShard, systemClock.now()).variant({ version: 1 })),
      changeSetOf(suite.fixture.tags, tagOf('a')),
    ];
    expect(await manager.persistAll(group())).toEqual(['written', 'single']);
  });

  test('excludes no rows from groups because a trigger failed', async () => {
    const suite = await openGrouped(database.url);
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
    const manager = suite.fixture.databases.transactionManager(firstShard);
    const group = (label: string): readonly ChangeSet[] =>
      ['good', label].map((each) => changeSetOf(suite.fixture.tags, tagOf(each)));
    await expect(manager.persistAll(group('bad'))).rejects.toMatchObject({ code: 'storage-failure' });
    expect(await manager.persistAll(group('good'))).toEqual(['written', 'written']);
  });
});

/** A tag as it is first stored. */
function tagOf(label: string): Tag {
  const { id, state } = Tag.of(firstShard, label);
  return new Tag({ id, state, label, version: 1 });
}

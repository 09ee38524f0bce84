import {
  type Account,
  type SuiteContext,
  decimal,
  firstShard,
  otherDatabaseShard,
} from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { CallRecorder, type RecordCheck, checkRecord } from '@framework/testing/record';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

let databases: readonly [TestDatabase, TestDatabase];
let suite: SuiteContext;
let registry: ReturnType<typeof openRegistry>;
let recorder: CallRecorder<Account | Error>;
let accounts: readonly [Account, Account];

beforeAll(async () => {
  databases = await Promise.all([createTestDatabase(), createTestDatabase()]);
});
afterAll(() => Promise.all(databases.map((database) => database.drop())));
beforeEach(async () => {
  registry = openRegistry([
    { group: 0, member: 0, url: databases[0].url },
    { group: 1, member: 0, url: databases[1].url },
  ]);
  await registry.ready();
  suite = suiteOn(registry);
  await suite.fixture.clear();
  accounts = [
    await suite.openAccount(firstShard, { balance: decimal('10') }),
    await suite.openAccount(otherDatabaseShard, { balance: decimal('10') }),
  ];
  recorder = new CallRecorder<Account | Error>({
    judge: (answer) =>
      answer instanceof Error
        ? { outcome: 'refused', says: answer.message }
        : { outcome: 'ok', says: 'ok', result: answer.version },
  });
});

/** A withdrawal that is refused if the balance is too low. */
function withdraw(account: Account, amount: string): Promise<unknown> {
  return recorder.call(`withdraw ${amount}`, (key) =>
    suite.withdraw(account, amount, { idempotencyKey: key }).catch((error: unknown) => error as Error),
  );
}

function violations(own: Partial<RecordCheck<Account | Error>> = {}): Promise<readonly string[]> {
  return checkRecord({
    recorder,
    databases: databases.map(({ url }) => url),
    tables: { Account: 'accounts' },
    mayBeThere: ({ name }) => name === 'StageAction',
    restWithinMs: 0,
    ...own,
  });
}

/** A statement that writes the last event once more, with other values. */
function againWith(values: string): string {
  return `insert into eventlog.events select again.* from eventlog.events e,
    jsonb_populate_record(e, jsonb_build_object(${values})) again where e.model_version = 2`;
}

const inBoth = (text: string): Promise<unknown> => Promise.all(databases.map(({ url }) => query(url, text)));

/** Returns its arguments, as an application's own check may report them. */
const sayAll: RecordCheck<Account | Error>['check'] = async ({ calls, events, rows }) => {
  const [first] = await rows(`select sum(balance)::integer as sum from accounts where balance > $1`, [6]);
  return [`${calls.length} calls, ${events.length} events, ${String(first?.['sum'])} left`];
};

const fail = (): never => {
  throw new Error('there is too much');
};

describe('a record of calls', () => {
  beforeEach(async () => {
    await withdraw(accounts[0], '3');
    await withdraw(accounts[1], '4');
    await withdraw(accounts[1], '40');
  });

  test('matches the databases when all is well, including repeats', async () => {
    for (const call of recorder.calls) await recorder.repeat(call);
    expect(recorder.calls.map(({ outcome }) => outcome)).toEqual(['ok', 'ok', 'refused']);
    expect(await violations()).toEqual([]);
  });

  test.each<[title: string, change: string, violation: RegExp]>([
    [
      'a successful call without its effect',
      `delete from eventlog.idempotency_keys; delete from eventlog.events where model_version = 2;
       update accounts set version = 1`,
      /^withdraw 3 \(.+\) was ok but has no effect$/,
    ],
    [
      'a key without its events',
      `delete from eventlog.events where model_version = 2`,
      /which no log holds$/,
    ],
    ['a row ahead of its log', `update accounts set version = 3`, /the row has version 3, the log 2$/],
    [
      'a gap between events',
      `update eventlog.events set model_version = 5 where model_version = 2; update accounts set version = 5`,
      /version 5 follows 1$/,
    ],
    [
      'a version made by two actions',
      againWith(`'action_id', gen_random_uuid()`),
      /2 actions made version 2$/,
    ],
    [
      'an action committed twice',
      againWith(`'created_date', e.created_date + interval '1 second'`),
      /is committed more than once in /,
    ],
    [
      'an action that no call asked for',
      `delete from eventlog.idempotency_keys`,
      /^WithdrawAction .+ was committed, although no call asked for it$/,
    ],
    ['a row without a history', `delete from eventlog.events`, /there is a row but no event$/],
  ])('detects %s', async (_title, change, violation) => {
    expect(await violations()).toEqual([]);
    await inBoth(change);
    expect(await violations()).toContainEqual(expect.stringMatching(violation));
  });

  test('detects a refused call that had an effect', async () => {
    await recorder.call('withdraw 1', async (key) => {
      await suite.withdraw(accounts[0], '1', { idempotencyKey: key });
      return new Error('it is said');
    });
    expect(await violations()).toEqual([
      expect.stringMatching(/was refused \(it is said\) but has an effect$/),
    ]);
  });

  test('detects a key with effects on two shards', async () => {
    await recorder.call('withdraw 1 twice', async (key) => {
      await suite.withdraw(accounts[1], '1', { idempotencyKey: key });
      await query(databases[0].url, `update eventlog.idempotency_keys set key = $1`, [key]);
      return accounts[1];
    });
    expect(await violations()).toContainEqual(expect.stringMatching(/^the key .+ has 2 effects$/));
  });

  test('is settled by repeating the unanswered calls, which have their effect once', async () => {
    let attempts = 0;
    await recorder.call('withdraw 1', async (key) => {
      const answer = await suite.withdraw(accounts[0], '1', { idempotencyKey: key });
      if (++attempts < 3) throw new Error('the answer is lost');
      return answer;
    });
    expect(await violations()).toEqual([expect.stringMatching(/has no known outcome/)]);
    await recorder.settle();
    expect(await violations()).toEqual([]);
    expect((await suite.accounts.getById(accounts[0].id)).balance).toMatch(/^6(\.0+)?$/);
  });

  test('detects a handler that has not reached the end of the log, and dead letters', async () => {
    for (const { store } of registry.deliveries())
      await store.cursors.register({ name: 'notify', aliases: [], startFrom: 'beginning' });
    expect(await violations()).toEqual(Array(2).fill('notify has not handled 2 events after 0 ms'));
    await inBoth(
      `update eventlog.cursors set snapshot = pg_current_snapshot();
       insert into eventlog.blocked_models (handler, slot, model_name, model_id, model_version, ordinal, event_id, event_type, attempts,
         error, dead)
       select 'notify', slot, model_name, model_id, model_version, ordinal, id, event_type, 3, 'no post', true
       from eventlog.events where model_version = 1`,
    );
    const dead = expect.stringMatching(/^notify gave up on .+ of version 1 of Account .+: no post$/);
    expect(await violations()).toEqual([dead, dead]);
    expect(await violations({ deadLettersMayStay: true })).toEqual([]);
    await inBoth(`update eventlog.blocked_models set dead = false`);
    expect(await violations()).toEqual(Array(2).fill('notify has not handled 1 events after 0 ms'));
    for (const { store } of registry.deliveries())
      await store.cursors.retire('notify', { discardBlocked: true });
  });

  test('reports actions that no call asked for unless they are allowed, and violations of custom checks', async () => {
    const all = { mayBeThere: () => false };
    expect(await violations(all)).toEqual(
      Array(2).fill(expect.stringMatching(/^StageAction .+ no call asked for it$/)),
    );
    expect(await violations({ check: sayAll })).toEqual(['3 calls, 4 events, 7 left']);
    expect(await violations({ check: fail })).toEqual(['there is too much']);
  });
});

// @module-tag postgres
import { type DatabaseRegistry, systemClock } from '@framework/core';
import { Account, type SuiteContext, Tag, firstShard, once } from '@framework/conformance';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { changeSetOf } from './fixtures/persist.js';
import { query } from './fixtures/query.js';

let database: TestDatabase;
let registry: DatabaseRegistry;
let suite: SuiteContext;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());
beforeEach(async () => {
  registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
  suite = suiteOn(registry);
  await query(
    database.url,
    `create table if not exists trace (id uuid);
     create or replace function leave_out() returns trigger language plpgsql as $$ begin
       if new.label <> 'left out' then return new; end if;
       insert into trace values (new.id);
       return null;
     end $$;
     create or replace trigger leave_out before insert on tags for each row execute function leave_out()`,
  );
  await suite.fixture.clear();
});

const account = (): Account => Account.open(firstShard, systemClock.now());
const tag = (): Tag => Tag.of(firstShard, 'left out');

/** All contents of the database. */
async function counts(): Promise<unknown> {
  const [row] = await query(
    database.url,
    `select (select count(*)::int from tags) as tags, (select count(*)::int from accounts) as accounts,
      (select count(*)::int from trace) as trace, (select count(*)::int from eventlog.events) as events,
      (select count(*)::int from eventlog.idempotency_keys) as keys`,
  );
  return row;
}

const key = { ...once, idempotencyKey: 'k', checkKeyEverywhere: false } as const;
const nothing = { tags: 0, accounts: 0, trace: 0, events: 0, keys: 0 };

describe('an addition that a trigger suppresses', () => {
  test.each([
    ['alone', once, () => [tag()]],
    ['after another one', once, () => [account(), tag()]],
    ['before another one', once, () => [tag(), Tag.of(firstShard, 'other')]],
    ['under an idempotency key', key, () => [tag()]],
    ['among many others', once, () => [tag(), ...Array.from({ length: 40 }, () => account())]],
  ])('is refused with its whole plan (%s)', async (_how, configuration, models) => {
    const execution = suite.stage((plan) => plan.addAll<Account | Tag>(models()), configuration);
    await expect(execution).rejects.toMatchObject({ code: 'storage-failure' });
    expect(await counts()).toEqual(nothing);
  });

  test('is refused with the update of its plan, and is not blamed for a stale plan', async () => {
    const [stored] = await suite.store(account());
    const before = await counts();
    const plan = (version: number): Promise<void> =>
      suite.stage((open) => {
        open.update(stored.variant({ version }).credit('1'));
        open.add(tag());
      }, once);
    await expect(plan(1)).rejects.toMatchObject({ code: 'storage-failure' });
    await expect(plan(7)).rejects.toMatchObject({ code: 'stale-record' });
    expect(await counts()).toEqual(before);
    expect(await suite.accounts.getById(stored.id)).toMatchObject({ version: 1 });
  });

  test('undoes its group, in which only its own plan is refused', async () => {
    const manager = registry.transactionManager(firstShard);
    const group = ['one', 'left out', 'other'].map((label) => {
      const { id, state } = Tag.of(firstShard, label);
      return changeSetOf(suite.fixture.tags, new Tag({ id, state, label, version: 1 }));
    });
    await expect(manager.persistAll(group)).rejects.toMatchObject({ code: 'storage-failure' });
    expect(await counts()).toEqual(nothing);
    const grouped = suiteOn(registry, { groupCommit: true });
    const stages = ['one', 'left out', 'other', 'last'].map((label) =>
      grouped.stage((plan) => plan.add(Tag.of(firstShard, label)), once),
    );
    const outcomes = await Promise.allSettled(stages);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
    expect(await counts()).toEqual({ ...nothing, tags: 3, events: 3 });
  });
});

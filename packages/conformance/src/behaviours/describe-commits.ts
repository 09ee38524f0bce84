import { CommitOutcomeUnknownError, FrameworkError, ShardedId, systemClock } from '@framework/core';
import type { ChangeSet, TransactionManager } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { CreditAccountAction } from '../account-actions.js';
import { Account, Tag, decimal } from '../account.js';
import {
  type SuiteContext,
  changeSetOf,
  otherDatabaseShard,
  firstShard,
  namespace,
  sameDatabaseShard,
  principal,
} from '../suite-context.js';

const uuidV7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Registers tests of what a successful commit leaves behind: rows, versions and the columns of the log. */
export function describeCommits(context: SuiteContext): void {
  describe('a commit', () => {
    test('writes the state and its events together', async () => {
      const account = await context.openAccount(firstShard, { owner: 'ada' });
      expect(await context.accounts.getById(account.id)).toEqual(account);
      const credited = await context.credit(account, '12.5');
      expect(credited).toMatchObject({ version: 2, balance: decimal('12.5') });
      expect(await context.accounts.getById(account.id)).toEqual(credited);
      const events = await context.storedEvents();
      expect(events.map(({ eventType, modelVersion }) => [eventType, modelVersion])).toEqual([
        ['AccountOpenedEvent', 1],
        ['AccountCreditedEvent', 2],
      ]);
    });

    test('fills every column of the log', async () => {
      const account = await context.openAccount();
      const earliest = systemClock.now().getTime();
      const params = { accountId: account.id, amount: '3' };
      const headers = { 'correlation-id': 'c-1', note: 'ünïcode' };
      await context.executor.execute(principal, CreditAccountAction, params, { headers });
      const [opened, credited] = await context.storedEvents();
      expect(credited).toEqual({
        id: expect.stringMatching(uuidV7),
        actionId: expect.stringMatching(uuidV7),
        ordinal: 0,
        namespace,
        actionName: 'CreditAccountAction',
        actionParams: { accountId: account.id.value, amount: '3' },
        principal: principal.name,
        modelId: account.id.value,
        modelName: 'Account',
        modelVersion: 2,
        eventType: 'AccountCreditedEvent',
        payload: { amount: decimal('3'), newBalance: decimal('3') },
        headers,
        startedDate: expect.any(Date),
        createdDate: expect.any(Date),
      });
      expect(credited?.startedDate.getTime()).toBeGreaterThanOrEqual(earliest);
      expect(credited?.startedDate.getTime()).toBeLessThanOrEqual(systemClock.now().getTime());
      expect(credited?.actionId).not.toBe(opened?.actionId);
      expect(credited?.id).not.toBe(credited?.actionId);
    });

    test("writes exactly the event's own fields, even if it has none", async () => {
      const account = await context.openAccount();
      await context.stage((plan) => plan.update(account.delete()));
      const [, deleted] = await context.storedEvents();
      expect(deleted).toMatchObject({ eventType: 'AccountDeletedEvent', modelVersion: 2 });
      expect(deleted?.payload).toEqual({});
    });

    test('gives several events of one update the same version, in the order of attachment', async () => {
      const account = await context.openAccount();
      await context.stage((plan) => plan.update(account.credit('1').annotate('two').credit('3')));
      const events = (await context.storedEvents()).slice(1);
      expect(
        events.map(({ eventType, ordinal, modelVersion }) => [eventType, ordinal, modelVersion]),
      ).toEqual([
        ['AccountCreditedEvent', 0, 2],
        ['AccountNotedEvent', 1, 2],
        ['AccountCreditedEvent', 2, 2],
      ]);
      expect(new Set(events.map(({ actionId }) => actionId)).size).toBe(1);
      expect(events.map(({ payload }) => payload)).toEqual([
        { amount: decimal('1'), newBalance: decimal('1') },
        { note: 'two' },
        { amount: decimal('3'), newBalance: decimal('4') },
      ]);
    });

    test('numbers the events of several models in the order of staging', async () => {
      const accounts = Array.from({ length: 3 }, () => Account.open(firstShard, systemClock.now()));
      const staged = accounts.toReversed();
      await context.stage((plan) => plan.addAll(staged));
      const events = await context.storedEvents();
      expect(events.map(({ ordinal }) => ordinal)).toEqual([0, 1, 2]);
      expect(events.map(({ modelId }) => modelId)).toEqual(staged.map(({ id }) => id.value));
    });

    test('changes the updated date, and never the created date', async () => {
      const created = new Date('2026-01-02T03:04:05.678Z');
      const [account] = await context.store(Account.open(firstShard, created));
      expect(account).toMatchObject({ createdDate: created, updatedDate: created });
      await context.stage((plan) => plan.update(account.credit('1')));
      const read = await context.accounts.getById(account.id);
      expect(read.createdDate).toEqual(created);
      expect(read.updatedDate.getTime()).toBeGreaterThan(created.getTime());
    });
  });
}

/** Registers tests of `inTransaction`, and of the calls that join it. */
export function describeTransactions(context: SuiteContext): void {
  const onShard = (shard = firstShard) => context.fixture.databases.transactionManager(shard);

  describe('inTransaction', () => {
    test('commits when the work resolves, and returns its result', async () => {
      const account = await context.openAccount();
      const result = await onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'kept');
        return 42;
      });
      expect(result).toBe(42);
      expect(await context.accounts.getById(account.id)).toMatchObject({ note: 'kept' });
    });

    test('rolls back and passes the error on when the work rejects', async () => {
      const account = await context.openAccount();
      const failure = new Error('changed my mind');
      const work = onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'lost');
        throw failure;
      });
      await expect(work).rejects.toBe(failure);
      expect(await context.accounts.getById(account.id)).toMatchObject({ note: null });
    });

    test('is joined by a query that its work returns and that begins only when it is awaited', async () => {
      const isJoined = onShard().inTransaction(() => lazily(async () => onShard().isInTransaction()));
      expect(await isJoined).toBe(true);
    });

    test('includes every read of a repository', async () => {
      const account = await context.openAccount(firstShard, { owner: 'ada' });
      const notes = await onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'inside');
        const { accounts } = context;
        const models = [
          await accounts.getById(account.id),
          ...(await accounts.findAllByIds([account.id])),
          ...(await accounts.findAll()),
          ...(await accounts.findByOwner('ada')),
          ...(await accounts.findPage({ limit: 1 })).items,
        ];
        return models.map(({ note }) => note);
      });
      expect(notes).toEqual(Array.from({ length: 5 }, () => 'inside'));
    });

    test('is joined by reads with a condition on a shard that shares its database', async () => {
      const account = await context.openAccount(sameDatabaseShard, { owner: 'ada' });
      await onShard(sameDatabaseShard).inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'inside');
        expect(await context.accounts.findByOwner('ada')).toMatchObject([{ note: 'inside' }]);
        expect(await context.accounts.count()).toBe(1);
      });
    });

    test('hides its changes from reads outside until it commits', async () => {
      const account = await context.openAccount();
      const read = gate();
      const written = gate();
      const outside = written.opened.then(async () => {
        const { note } = await context.accounts.getById(account.id);
        read.open();
        return note;
      });
      await onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'inside');
        written.open();
        await read.opened;
      });
      expect(await outside).toBeNull();
    });

    test('is refused inside another one on the same shard', async () => {
      const nested = onShard().inTransaction(() => onShard().inTransaction(async () => 'never'));
      await expect(nested).rejects.toMatchObject({ code: 'nested-transaction', shard: firstShard });
    });

    test('is possible inside another one on a different shard', async () => {
      const [here, there] = [
        await context.openAccount(firstShard),
        await context.openAccount(otherDatabaseShard),
      ];
      await onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(here, 'outer');
        await onShard(otherDatabaseShard).inTransaction(() => context.fixture.overwriteNote(there, 'inner'));
        expect(await context.accounts.getById(here.id)).toMatchObject({ note: 'outer' });
      });
      const notes = (await context.accounts.findAllByIds([here.id, there.id])).map(({ note }) => note);
      expect(notes).toEqual(['outer', 'inner']);
    });

    test('refuses to execute an action on the same shard', async () => {
      const account = await context.openAccount();
      const executed = onShard().inTransaction(() => context.credit(account, '1'));
      await expect(executed).rejects.toMatchObject({ code: 'nested-transaction', shard: firstShard });
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(await context.storedEvents()).toHaveLength(1);
    });

    test('lets an action run on another shard', async () => {
      const account = await context.openAccount(otherDatabaseShard);
      await onShard().inTransaction(() => context.credit(account, '1'));
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 2 });
    });

    test('refuses statements after it has ended', async () => {
      const account = await context.openAccount();
      const ended = gate();
      const late: Promise<unknown>[] = [];
      await onShard().inTransaction(async () => {
        late.push(
          ended.opened.then(() => context.accounts.getById(account.id)),
          ended.opened.then(() => context.fixture.overwriteNote(account, 'too late')),
          ended.opened.then(() => onShard().inTransaction(async () => undefined)),
          ended.opened.then(() => context.credit(account, '1')),
        );
        for (const call of late) call.catch(() => undefined);
      });
      ended.open();
      for (const call of late) {
        // A query builder may wrap the error of its own statement.
        const refusal = FrameworkError.find(await call.catch((error: unknown) => error));
        expect(refusal).toMatchObject({ code: 'transaction-over', shard: firstShard });
      }
      expect(await context.accounts.getById(account.id)).toEqual(account);
    });

    test('does not affect what follows it', async () => {
      await expect(onShard().inTransaction(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
      await context.stage((plan) => plan.add(Account.open(firstShard, systemClock.now())));
      expect(await onShard().inTransaction(() => context.accounts.count())).toBe(1);
    });
  });
}

function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}

/** Like a query of Drizzle: nothing happens until it is awaited. */
function lazily<T>(work: () => Promise<T>): Promise<T> {
  // oxlint-disable-next-line unicorn/no-thenable -- such a query is a thenable
  const lazy: PromiseLike<T> = { then: (resolve, reject) => work().then(resolve, reject) };
  return lazy as Promise<T>;
}

/** Registers tests of commits whose answer was lost, and of what is written after them. */
export function describeUnknownOutcomes(context: SuiteContext): void {
  const manager = (): TransactionManager => context.fixture.databases.transactionManager(firstShard);
  const update = (account: Account, amount: string): ChangeSet =>
    changeSetOf(
      context.accounts,
      account.credit(amount).variant({ version: account.version + 1, events: [] }),
      ['{}'],
    );
  /** What the executor writes when it runs an action again: an update of a fresh read, under the same action id. */
  const again = async ({ action }: ChangeSet, account: Account, amount: string): Promise<ChangeSet> => ({
    ...update(await context.accounts.getById(account.id), amount),
    action,
  });

  describe('a commit whose answer was lost', () => {
    test('is found if it happened', async () => {
      const account = await context.openAccount(firstShard);
      const changes = update(account, '5');
      await manager().persist(changes);
      expect(await manager().isCommitted(lost(changes))).toBe(true);
    });

    test('prevents a repetition of its action from having a second effect', async () => {
      const account = await context.openAccount(firstShard);
      const changes = update(account, '5');
      await manager().persist(changes);
      const repetition = { ...(await again(changes, account, '5')), unknownCommits: [lost(changes)] };
      const before = await context.contents();
      expect(await manager().persist(repetition)).toBe('written-before');
      expect(await context.contents()).toEqual(before);
    });

    test('prevents a repetition of many rows from being written', async () => {
      const account = await context.openAccount(firstShard);
      const changes = update(account, '5');
      await manager().persist(changes);
      const before = await context.contents();
      const many = Array.from(
        { length: 70 },
        () =>
          new Tag({ id: ShardedId.generate(Tag, firstShard), state: 'ACTIVE', label: 'once', version: 1 }),
      );
      const repetition: ChangeSet = {
        ...changes,
        changes: many.map((model) => {
          const repository = context.fixture.tags;
          return { kind: 'add', repository, model, expectedVersion: 0, row: repository.encode(model) };
        }),
        events: [],
        unknownCommits: [lost(changes)],
      };
      expect(await manager().persist(repetition)).toBe('written-before');
      expect(await context.contents()).toEqual(before);
    });

    test('lets a repetition be written if it did not happen', async () => {
      const account = await context.openAccount(firstShard);
      const changes = update(account, '5');
      const repetition = { ...(await again(changes, account, '5')), unknownCommits: [lost(changes)] };
      expect(await manager().persist(repetition)).toBe('written');
      expect(await context.accounts.getById(account.id)).toMatchObject({
        version: 2,
        balance: decimal('5'),
      });
    });

    test('lets a repetition fail as stale if it did not happen', async () => {
      const account = await context.openAccount(firstShard);
      const changes = { ...update(account, '5'), unknownCommits: [lost(update(account, '5'))] };
      await context.credit(account, '1');
      const before = await context.contents();
      await expect(manager().persist(changes)).rejects.toMatchObject({ code: 'stale-record' });
      expect(await context.contents()).toEqual(before);
    });
  });
}

/** The error of a commit whose answer was lost. */
function lost({ action }: ChangeSet): CommitOutcomeUnknownError {
  return new CommitOutcomeUnknownError(firstShard, action.id);
}

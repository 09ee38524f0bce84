import { FrameworkError, systemClock } from '@framework/core';
import { outsideRequests } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { TransferAction } from '../account-actions.js';
import { Account, Tag, decimal, sum } from '../account.js';
import { type SuiteContext, at, changeSetOf, firstShard, once, principal } from '../suite-context.js';

/** Enough rounds for two executions to overlap now and then in the middle of their statements. */
const roundCount = 30;

/** Registers tests of many executions that want the same models at once. */
export function describeConcurrency(context: SuiteContext): void {
  describe('concurrent executions', () => {
    test('add up on one model: every success counts once, and versions and events have no gaps', async () => {
      const account = await context.openAccount();
      const outcomes = await Promise.allSettled(
        Array.from({ length: 64 }, () => context.credit(account, '0.01')),
      );
      const successes = outcomes.filter(({ status }) => status === 'fulfilled').length;
      expect(successes).toBeGreaterThan(0);
      expect(codes(outcomes)).toEqual(new Set(successes === 64 ? [] : ['stale-record']));
      const stored = await context.accounts.getById(account.id);
      expect(stored).toMatchObject({
        version: 1 + successes,
        balance: decimal(`0.${String(successes).padStart(2, '0')}`),
      });
      await expectContiguousHistory(context, account, 1 + successes);
    });

    test('give every success a version of its own', async () => {
      const account = await context.openAccount();
      const outcomes = await Promise.allSettled(
        Array.from({ length: 16 }, () => context.credit(account, '1')),
      );
      const versions = outcomes.flatMap((outcome) =>
        outcome.status === 'fulfilled' ? [outcome.value.version] : [],
      );
      expect(new Set(versions).size).toBe(versions.length);
    });

    test('say that an id exists if, and only if, they have found its model before', async () => {
      const [stored, missing] = [await context.openAccount(), Account.blank(firstShard, systemClock.now())];
      const { accounts } = context;
      const answers: boolean[] = [];
      await context.stage(async () => {
        answers.push((await accounts.findById(missing.id)) !== undefined);
        await accounts.getById(stored.id);
        await outsideRequests(async () => {
          await context.store(missing);
          await context.stage((plan) => plan.update(stored.delete()));
        });
        answers.push(await accounts.existsById(missing.id), await accounts.existsById(stored.id));
      }, once);
      expect(answers).toEqual([false, false, true]);
      expect([await accounts.existsById(missing.id), await accounts.existsById(stored.id)]).toEqual([
        true,
        false,
      ]);
    });

    // Each execution has a single attempt, because another one would hide a deadlock from the caller.
    test('all end when they change two models in opposite orders', async () => {
      const one = await context.openAccount(firstShard, { balance: decimal('1000') });
      const other = await context.openAccount(firstShard, { balance: decimal('1000') });
      const transfers = Array.from({ length: 32 }, (_unused, index) => {
        const [from, to] = index % 2 === 0 ? [one, other] : [other, one];
        const params = { fromId: from.id, toId: to.id, amount: '1' };
        return context.executor.execute(principal, TransferAction, params, once);
      });
      const outcomes = await Promise.allSettled(transfers);
      expect([...codes(outcomes)].filter((code) => code !== 'stale-record')).toEqual([]);
      const successes = outcomes.filter(({ status }) => status === 'fulfilled').length;
      expect(successes).toBeGreaterThan(0);
      const stored = await context.accounts.findAllByIds([one.id, other.id]);
      expect(stored.map(({ balance }) => balance).reduce(sum)).toBe(decimal('2000'));
      expect(stored.map(({ version }) => version)).toEqual([1 + successes, 1 + successes]);
      await expectContiguousHistory(context, one, 1 + successes);
      await expectContiguousHistory(context, other, 1 + successes);
    });

    test('do not deadlock when they change many models in opposite orders', async () => {
      let accounts: readonly Account[] = await context.store(...accountsOf(24));
      for (let round = 0; round < roundCount; round++) {
        const next = accounts.map((account) => account.credit('1'));
        const executions = Array.from({ length: 4 }, (_unused, index) =>
          context.stage((plan) => plan.updateAll(index % 2 === 0 ? next : next.toReversed()), once),
        );
        const outcomes = await Promise.allSettled(executions);
        expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
        expect(codes(outcomes)).toEqual(new Set(['stale-record']));
        accounts = await context.accounts.findAll();
      }
      expect(new Set(accounts.map(({ version }) => version))).toEqual(new Set([1 + roundCount]));
    });
  });
}

function accountsOf(count: number): readonly Account[] {
  return Array.from({ length: count }, () => Account.open(firstShard, systemClock.now()));
}

function codes(outcomes: readonly PromiseSettledResult<unknown>[]): ReadonlySet<string> {
  const failed = outcomes.filter((outcome) => outcome.status === 'rejected');
  return new Set(failed.map(({ reason }) => FrameworkError.find(reason)?.code ?? String(reason)));
}

async function expectContiguousHistory(
  context: SuiteContext,
  account: Account,
  length: number,
): Promise<void> {
  const events = (await context.storedEvents()).filter(({ modelId }) => modelId === account.id.value);
  expect(events.map(({ modelVersion }) => modelVersion)).toEqual(
    Array.from({ length }, (_unused, index) => index + 1),
  );
}

/** Registers tests which check that a plan with a stale row leaves nothing behind, and is tried again with fresh reads. */
export function describeStaleRecords(context: SuiteContext): void {
  describe('a stale attempt', () => {
    test('writes nothing when an update is stale', async () => {
      const account = await context.openAccount();
      await context.credit(account, '1');
      const stale = context.stage((plan) => plan.update(account.credit('100')), once);
      await expect(stale).rejects.toMatchObject({
        code: 'stale-record',
        model: 'Account',
        id: account.id.value,
        expectedVersion: 1,
      });
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 2 });
      expect(await context.storedEvents()).toHaveLength(2);
    });

    test('writes nothing when an update without events is stale', async () => {
      const [tag] = await context.store(Tag.of(firstShard, 'first'));
      await context.stage((plan) => plan.update(tag.rename('second')));
      const stale = context.stage((plan) => plan.update(tag.rename('lost')), once);
      await expect(stale).rejects.toMatchObject({ code: 'stale-record', model: 'Tag' });
      expect(await context.fixture.tags.getById(tag.id)).toMatchObject({ label: 'second' });
      expect(await context.storedEvents()).toHaveLength(2);
    });

    test.each([
      ['first', 0],
      ['middle', 2],
      ['last', 4],
    ])('writes nothing when the %s of several rows is stale', async (_place, index) => {
      const accounts = await context.store(...accountsOf(5));
      const stale = at(accounts, index);
      await context.stage((plan) => plan.update(stale.credit('1')));
      const before = await context.contents();
      const addition = Account.open(firstShard, systemClock.now());
      const refused = context.stage((plan) => {
        plan.add(addition);
        plan.updateAll(accounts.map((account) => account.credit('100')));
        plan.add(Tag.of(firstShard, 'new'));
      }, once);
      await expect(refused).rejects.toMatchObject({ code: 'stale-record', id: stale.id.value });
      expect(await context.contents()).toEqual(before);
    });

    test('writes nothing when the row of an update does not exist', async () => {
      const ghost = Account.blank(firstShard, systemClock.now()).variant({ version: 3 });
      const refused = context.stage((plan) => {
        plan.add(Tag.of(firstShard, 'beside'));
        plan.update(ghost.credit('1'));
      }, once);
      await expect(refused).rejects.toMatchObject({ code: 'stale-record', expectedVersion: 3 });
      expect(await context.contents()).toEqual({ accounts: [], tags: [], events: [] });
    });

    test('writes nothing when the version is ahead of the row', async () => {
      const account = await context.openAccount();
      const ahead = account.variant({ version: 7 });
      await expect(context.stage((plan) => plan.update(ahead.credit('1')), once)).rejects.toMatchObject({
        code: 'stale-record',
      });
      expect(await context.accounts.getById(account.id)).toEqual(account);
    });

    test('makes the action run again, with fresh reads', async () => {
      const account = await context.openAccount();
      let attempts = 0;
      await context.stage(async (plan) => {
        const read = await context.accounts.getById(account.id);
        if (++attempts === 1) await overtake(context, account);
        plan.update(read.credit('10'));
      });
      expect(attempts).toBe(2);
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 3 });
      // One event of the opening, two of the change in between, and one of the second attempt.
      expect(await context.storedEvents()).toHaveLength(4);
    });

    test('writes nothing when it was read on another timeline, where its version may differ', async () => {
      const account = await context.openAccount();
      const manager = context.fixture.databases.transactionManager(firstShard);
      const next = account.credit('1').variant({ version: 2, events: [] });
      const update = changeSetOf(context.accounts, next, ['{}']);
      const { timeline } = manager;
      await expect(manager.persist({ ...update, timeline: timeline - 1 })).rejects.toMatchObject({
        code: 'stale-record',
        id: account.id.value,
        expectedVersion: 1,
      });
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(await manager.persist({ ...update, timeline })).toBe('written');
    });

    test('prevents no later change, however often it was refused', async () => {
      const account = await context.openAccount();
      for (let round = 0; round < 30; round++) {
        const stale = account.variant({ version: 9 });
        await expect(context.stage((plan) => plan.update(stale.credit('1')), once)).rejects.toMatchObject({
          code: 'stale-record',
        });
      }
      expect(await context.credit(account, '1')).toMatchObject({ version: 2 });
    });
  });
}

/** Changes the account outside the current execution. */
async function overtake({ fixture }: SuiteContext, account: Account): Promise<void> {
  const next = account.credit('1').variant({ version: account.version + 1, events: [] });
  await fixture.databases
    .transactionManager(firstShard)
    .persist(changeSetOf(fixture.accounts, next, ['{}', '{}']));
}

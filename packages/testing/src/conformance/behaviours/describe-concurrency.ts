import { FrameworkException, systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { TransferAction } from '../actions/transfer-action.js';
import { Account } from '../domain/account.js';
import { decimal, sum } from '../domain/decimal-text.js';
import { type SuiteContext, home, once, principal } from '../suite-context.js';

/** Enough for two of them to meet, now and then, in the middle of their statements. */
const roundCount = 30;

/** Registers what stays true when many executions want the same models at once. */
export function describeConcurrency(context: SuiteContext): void {
  describe('concurrent executions', () => {
    it('add up on one model: every success counts once, and versions and events have no gap', async () => {
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

    it('gives every success a version of its own', async () => {
      const account = await context.openAccount();
      const outcomes = await Promise.allSettled(
        Array.from({ length: 16 }, () => context.credit(account, '1')),
      );
      const versions = outcomes.flatMap((outcome) =>
        outcome.status === 'fulfilled' ? [outcome.value.version] : [],
      );
      expect(new Set(versions).size).toBe(versions.length);
    });

    // Without further attempts, which would hide a deadlock from the caller.
    it('all end when they change two models in opposite orders', async () => {
      const one = await context.openAccount(home, { balance: decimal('1000') });
      const other = await context.openAccount(home, { balance: decimal('1000') });
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

    it('do not deadlock each other when they change many models in opposite orders', async () => {
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
  return Array.from({ length: count }, () => Account.open(home, systemClock.now()));
}

function codes(outcomes: readonly PromiseSettledResult<unknown>[]): ReadonlySet<string> {
  const failed = outcomes.filter((outcome) => outcome.status === 'rejected');
  return new Set(failed.map(({ reason }) => FrameworkException.find(reason)?.code ?? String(reason)));
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

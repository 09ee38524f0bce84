import { CommitOutcomeUnknownError, ShardedId } from '@framework/core';
import type { ChangeSet, TransactionManager } from '@framework/core/adapter';
import { describe, expect, it } from 'vitest';

import { type Account, Tag, decimal } from '../account.js';
import { type SuiteContext, changeSetOf, firstShard } from '../suite-context.js';

/** Registers what holds for commits whose answer was lost, and for what is written after them. */
export function describeUnknownOutcomes(context: SuiteContext): void {
  const manager = (): TransactionManager => context.fixture.databases.transactionManager(firstShard);
  const update = (account: Account, amount: string): ChangeSet =>
    changeSetOf(
      context.accounts,
      account.credit(amount).variant({ version: account.version + 1, events: [] }),
      ['{}'],
    );
  /** As the executor runs an action again: freshly read, with the same action. */
  const again = async ({ action }: ChangeSet, account: Account, amount: string): Promise<ChangeSet> => ({
    ...update(await context.accounts.getById(account.id), amount),
    action,
  });

  describe('a commit whose answer was lost', () => {
    it('is found when it happened', async () => {
      const account = await context.openAccount(firstShard);
      const changes = update(account, '5');
      await manager().persist(changes);
      expect(await manager().isCommitted(lost(changes))).toBe(true);
    });

    it('keeps a repetition of its action from having a second effect', async () => {
      const account = await context.openAccount(firstShard);
      const changes = update(account, '5');
      await manager().persist(changes);
      const repetition = { ...(await again(changes, account, '5')), unknownCommits: [lost(changes)] };
      const before = await context.contents();
      expect(await manager().persist(repetition)).toBe('written-before');
      expect(await context.contents()).toEqual(before);
    });

    it('keeps a repetition of many rows from being written, too', async () => {
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

    it('lets a repetition be written when it did not happen', async () => {
      const account = await context.openAccount(firstShard);
      const changes = update(account, '5');
      const repetition = { ...(await again(changes, account, '5')), unknownCommits: [lost(changes)] };
      expect(await manager().persist(repetition)).toBe('written');
      expect(await context.accounts.getById(account.id)).toMatchObject({
        version: 2,
        balance: decimal('5'),
      });
    });

    it('lets a repetition be stale when it did not happen', async () => {
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

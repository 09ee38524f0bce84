import { FrameworkError, systemClock } from '@framework/core';
import type { ChangeSet, TransactionManager } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { Account, Tag, decimal } from '../account.js';
import { type SuiteContext, at, changeSetOf, firstShard, once } from '../suite-context.js';

/** Registers tests of change sets of several actions that are written together. */
export function describeGroups(context: SuiteContext): void {
  const manager = (): TransactionManager => context.fixture.databases.transactionManager(firstShard);
  const update = (account: Account, amount: string): Update => {
    const next = account.credit(amount).variant({ version: account.version + 1, events: [] });
    return { next, set: changeSetOf(context.accounts, next, ['{}']) };
  };
  const store = async (count: number): Promise<readonly Account[]> => {
    const accounts: Account[] = [];
    while (accounts.length < count) accounts.push(await context.openAccount(firstShard));
    return accounts;
  };
  const versions = async (accounts: readonly Account[]): Promise<readonly number[]> =>
    (await context.accounts.findAllByIds(accounts.map(({ id }) => id))).map(({ version }) => version);

  describe('a group of change sets', () => {
    test('is written as a whole, with events in the order of the change sets', async () => {
      const accounts = await store(3);
      const updates = accounts.toReversed().map((account) => update(account, '1'));
      expect(await writeTogether(manager(), updates)).toEqual(['written', 'written', 'written']);
      expect(await versions(accounts)).toEqual([2, 2, 2]);
      const events = (await context.storedEvents()).slice(3);
      expect(events.map(({ actionId }) => actionId)).toEqual(updates.map(({ set }) => set.action.id));
    });

    test('is written without a stale change set, which leaves nothing behind', async () => {
      const accounts = await store(3);
      const stale = accounts.map((account, index) =>
        index === 1 ? account.variant({ version: 7 }) : account,
      );
      const outcomes = await writeTogether(
        manager(),
        stale.map((account) => update(account, '1')),
      );
      expect(outcomes).toEqual(['written', 'stale-record', 'written']);
      expect(await versions(accounts)).toEqual([2, 1, 2]);
      expect(await context.storedEvents()).toHaveLength(5);
    });

    test('writes several versions of one row, with all their events', async () => {
      const account = at(await store(1), 0);
      const chain = chainOf(account, 4, update);
      expect(await writeTogether(manager(), chain)).toEqual(chain.map(() => 'written'));
      expect(await context.accounts.getById(account.id)).toMatchObject({
        version: 5,
        balance: decimal('4'),
      });
      const events = await context.storedEvents();
      expect(events.map(({ modelVersion }) => modelVersion)).toEqual([1, 2, 3, 4, 5]);
    });

    test('writes nothing of a change set based on a version that an earlier one replaces', async () => {
      const account = at(await store(1), 0);
      const both = [update(account, '100'), update(account, '5')];
      expect(await writeTogether(manager(), both)).toEqual(['written', 'stale-record']);
      expect(await context.accounts.getById(account.id)).toMatchObject({
        version: 2,
        balance: decimal('100'),
      });
      expect(await context.storedEvents()).toHaveLength(2);
    });

    test('is written without a change set that was read on another timeline', async () => {
      const accounts = await store(3);
      const { timeline } = manager();
      const updates = accounts.map((account, index) => {
        const { next, set } = update(account, '1');
        return { next, set: { ...set, timeline: index === 1 ? timeline - 1 : timeline } };
      });
      expect(await writeTogether(manager(), updates)).toEqual(['written', 'stale-record', 'written']);
      expect(await versions(accounts)).toEqual([2, 1, 2]);
    });

    test('writes nothing of a change set that follows a stale version', async () => {
      const accounts = await store(2);
      const [account, other] = [at(accounts, 0), at(accounts, 1)];
      const overtaken = await context.credit(account, '9');
      const chain = chainOf(account, 3, update);
      const outcomes = await writeTogether(manager(), [...chain, update(other, '1')]);
      expect(outcomes).toEqual(['stale-record', 'stale-record', 'stale-record', 'written']);
      expect(await context.accounts.getById(account.id)).toEqual(overtaken);
    });

    test('writes each idempotency key with its change set, and no change set whose key is taken', async () => {
      const accounts = await store(3);
      await context.withdraw(at(accounts, 0), '0', { idempotencyKey: 'taken' });
      const keyed = accounts.map((account, index) => {
        const { next, set } = update(index === 0 ? account.variant({ version: 2 }) : account, '1');
        return { next, set: { ...set, key: keyOf(set, index === 0 ? 'taken' : `k-${index}`) } };
      });
      expect(await writeTogether(manager(), keyed)).toEqual(['key-taken', 'written', 'written']);
      expect(await versions(accounts)).toEqual([2, 2, 2]);
      expect(await context.fixture.keyCount(firstShard)).toBe(3);
    });

    test('is refused inside a transaction on its shard, where isInTransaction returns true', async () => {
      const account = at(await store(1), 0);
      expect(manager().isInTransaction()).toBe(false);
      await manager().inTransaction(async () => {
        expect(manager().isInTransaction()).toBe(true);
        // An adapter may refuse the whole group, or leave the change set to be persisted on its own, which is then refused.
        const codes = await writeTogether(manager(), [update(account, '1')]).catch((error) => [
          codeOf(error),
        ]);
        expect(codes).toEqual(['nested-transaction']);
      });
      expect(await versions([account])).toEqual([1]);
    });
  });
}

/** An account as it will be stored, and the change set that stores it. */
interface Update {
  readonly next: Account;
  readonly set: ChangeSet;
}

/** The given number of versions of an account, each made from the previous one. */
function chainOf(
  account: Account,
  length: number,
  update: (account: Account, amount: string) => Update,
): readonly Update[] {
  const chain: Update[] = [];
  while (chain.length < length) chain.push(update(chain.at(-1)?.next ?? account, '1'));
  return chain;
}

/** Persists a group, then one by one the change sets that it could not hold; returns the outcome or error code of each. */
async function writeTogether(
  manager: TransactionManager,
  updates: readonly { readonly set: ChangeSet }[],
): Promise<readonly string[]> {
  const outcomes = await manager.persistAll(updates.map(({ set }) => set));
  const codes: string[] = [];
  const lost = new Set<string>();
  for (const [index, { set }] of updates.entries()) {
    const outcome = outcomes[index];
    const ids = set.changes.map(({ model }) => model.id.value);
    if (outcome !== 'single') codes.push(typeof outcome === 'string' ? outcome : (outcome?.code ?? 'none'));
    else codes.push(ids.some((id) => lost.has(id)) ? 'stale-record' : await persisted(manager, set));
    if (codes.at(-1) !== 'written') for (const id of ids) lost.add(id);
  }
  return codes;
}

async function persisted(manager: TransactionManager, set: ChangeSet): Promise<string> {
  try {
    return await manager.persist(set);
  } catch (error) {
    return codeOf(error);
  }
}

function codeOf(error: unknown): string {
  return FrameworkError.find(error)?.code ?? String(error);
}

function keyOf({ action }: ChangeSet, key: string): NonNullable<ChangeSet['key']> {
  const { namespace, principal } = action;
  return { namespace, principal, key, fingerprint: 'print', result: undefined, lifetimeMs: 60_000 };
}

const modelCount = 200;
const eventCount = 300;

/** Registers tests which check that a plan stays atomic when it is too large for one statement. */
export function describeLargePlans(context: SuiteContext): void {
  describe(`a plan of ${modelCount} models with ${eventCount} events`, () => {
    test('is written as a whole', async () => {
      const accounts = await storeAccounts(context);
      await context.stage((plan) => plan.updateAll(changed(accounts)));
      const stored = await context.accounts.findAll();
      expect(stored.map(({ id }) => id.value)).toEqual(accounts.map(({ id }) => id.value));
      expect(new Set(stored.map(({ version }) => version))).toEqual(new Set([2]));
      expect(stored.filter(({ note }) => note === 'seen')).toHaveLength(eventCount - modelCount);
      const events = (await context.storedEvents()).slice(modelCount);
      expect(events.map(({ ordinal }) => ordinal)).toEqual(Array.from({ length: eventCount }, (_e, i) => i));
      expect(new Set(events.map(({ actionId }) => actionId)).size).toBe(1);
      expect(new Set(events.map(({ id }) => id)).size).toBe(eventCount);
    });

    test.each([
      ['the first', 0],
      ['one in the middle', 101],
      ['the last', modelCount - 1],
    ])('leaves nothing behind when %s is stale', async (_place, index) => {
      const accounts = await storeAccounts(context);
      const stale = at(accounts, index);
      await context.stage((plan) => plan.update(stale.credit('7')));
      const refused = context.stage((plan) => {
        plan.add(Tag.of(firstShard, 'beside'));
        plan.updateAll(changed(accounts));
        plan.add(Account.open(firstShard, systemClock.now()));
      }, once);
      await expect(refused).rejects.toMatchObject({ code: 'stale-record', id: stale.id.value });
      const versions = (await context.accounts.findAll()).map(({ version }) => version);
      expect(versions).toEqual(accounts.map((account) => (account === stale ? 2 : 1)));
      expect(await context.fixture.tags.count()).toBe(0);
      expect(await context.storedEvents()).toHaveLength(modelCount + 1);
    });

    test('leaves nothing behind when an added row in the middle already exists', async () => {
      const accounts = Array.from({ length: modelCount }, () => Account.open(firstShard, systemClock.now()));
      await context.store(at(accounts, 101));
      await expect(context.stage((plan) => plan.addAll(accounts))).rejects.toMatchObject({
        code: 'stale-record',
        id: at(accounts, 101).id.value,
      });
      expect(await context.accounts.count()).toBe(1);
      expect(await context.storedEvents()).toHaveLength(1);
    });

    test('writes many events of one model with one version', async () => {
      const account = await context.openAccount();
      let next = account;
      for (let step = 0; step < eventCount; step++) next = next.credit('1');
      await context.stage((plan) => plan.update(next));
      const events = (await context.storedEvents()).slice(1);
      expect(events.map(({ ordinal }) => ordinal)).toEqual(Array.from({ length: eventCount }, (_e, i) => i));
      expect(new Set(events.map(({ modelVersion }) => modelVersion))).toEqual(new Set([2]));
      expect(await context.accounts.getById(account.id)).toMatchObject({ balance: decimal('300') });
    });
  });
}

async function storeAccounts(context: SuiteContext): Promise<readonly Account[]> {
  return context.store(
    ...Array.from({ length: modelCount }, () => Account.open(firstShard, systemClock.now())),
  );
}

/** The next versions: the first hundred with two events, the others with one. */
function changed(accounts: readonly Account[]): readonly Account[] {
  return accounts.map((account, index) =>
    index < eventCount - modelCount ? account.credit('1').annotate('seen') : account.credit('1'),
  );
}

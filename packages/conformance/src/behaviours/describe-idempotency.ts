import { type ExecutionConfiguration, systemClock } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { FindOwnerAction, OpenAccountAction, Overdrawn, WithdrawAction } from '../account-actions.js';
import { Account, Tag, decimal } from '../account.js';
import {
  type SuiteContext,
  otherDatabaseShard,
  at,
  firstShard,
  sameDatabaseShard,
  once,
  principal,
} from '../suite-context.js';

const atOnce = 100;

/** Registers tests which check that a request with an idempotency key has one effect and one answer, however often it is sent. */
export function describeIdempotency(context: SuiteContext): void {
  describe.each<[title: string, isSearched: boolean]>([
    ['an idempotency key', true],
    ['an idempotency key that is not searched for', false],
  ])('%s', (_title, checkKeyEverywhere) => {
    const replays = new WeakMap<ExecutionConfiguration, number>();
    const replaysOf = (configuration: ExecutionConfiguration): number => replays.get(configuration) ?? 0;
    const keyed = (idempotencyKey: string): ExecutionConfiguration => {
      const configuration: ExecutionConfiguration = {
        idempotencyKey,
        checkKeyEverywhere,
        onReplayed: () => void replays.set(configuration, replaysOf(configuration) + 1),
      };
      return configuration;
    };

    test('returns the first result to a repeat, and writes nothing for it', async () => {
      const account = await context.openAccount(otherDatabaseShard, {
        note: 'zwölf 🚲',
        settings: { a: [1, null] },
      });
      const [first, second] = [keyed('k-1'), keyed('k-1')];
      const stored = await context.withdraw(account, '0', first);
      const before = await context.contents();
      expect(await context.withdraw(account, '0', second)).toEqual(stored);
      expect([replaysOf(first), replaysOf(second)]).toEqual([0, 1]);
      expect(await context.contents()).toEqual(before);
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 2 });
    });

    test(`has one effect for ${atOnce} simultaneous requests, and one answer for all`, async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      const key = keyed('k-1');
      const results = await Promise.all(
        Array.from({ length: atOnce }, () => context.withdraw(account, '10', key)),
      );
      expect(results).toEqual(Array.from({ length: atOnce }, () => results[0]));
      expect(results[0]).toMatchObject({ version: 2, balance: decimal('0') });
      expect(replaysOf(key)).toBe(atOnce - 1);
      expect(await context.accounts.getById(account.id)).toEqual(results[0]);
      expect(await context.storedEvents()).toHaveLength(2);
    });

    test('returns the first result when the model has been deleted meanwhile', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      const stored = await context.withdraw(account, '1', keyed('k-1'));
      await context.stage((plan) => plan.update(stored.delete()));
      expect(await context.withdraw(account, '1', keyed('k-1'))).toEqual(stored);
    });

    test('is refused for a different request, which writes nothing', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      await context.withdraw(account, '1', keyed('k-1'));
      const before = await context.contents();
      for (const amount of ['2', '10']) {
        await expect(context.withdraw(account, amount, keyed('k-1'))).rejects.toMatchObject({
          code: 'idempotency-key-reused',
          key: 'k-1',
        });
      }
      const owner = { owner: 'ada', group: 0 };
      await expect(
        context.executor.execute(principal, OpenAccountAction, owner, keyed('k-1')),
      ).rejects.toMatchObject({ code: 'idempotency-key-reused' });
      expect(await context.contents()).toEqual(before);
    });

    test('belongs to one principal', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      const params = { accountId: account.id, amount: '1' };
      for (const name of ['ada', 'grace'])
        await context.executor.execute({ name }, WithdrawAction, params, keyed('k-1'));
      expect(await context.accounts.getById(account.id)).toMatchObject({ balance: decimal('8') });
    });

    test('is free again after the request was refused', async () => {
      const account = await context.openAccount(firstShard);
      await expect(context.withdraw(account, '5', keyed('k-1'))).rejects.toBeInstanceOf(Overdrawn);
      expect(await context.fixture.keyCount(firstShard)).toBe(0);
      await context.credit(account, '5');
      expect(await context.withdraw(account, '5', keyed('k-1'))).toMatchObject({ version: 3 });
    });

    test.each([
      ['the only row', 0, 0],
      ['a later row', 1, 0],
      ['a row of a later statement', 40, 40],
    ])('is free again after %s was stale', async (_row, position, tagCount) => {
      const accounts = await context.store(...newAccounts(position + 1));
      await context.credit(at(accounts, position), '1');
      const stale = context.stage(
        (plan) => {
          plan.updateAll(accounts.map((account) => account.credit('1')));
          plan.addAll(Array.from({ length: tagCount }, () => Tag.of(firstShard, 'beside')));
        },
        { ...keyed('k-1'), ...once },
      );
      await expect(stale).rejects.toMatchObject({
        code: 'stale-record',
        id: at(accounts, position).id.value,
      });
      expect(await context.fixture.keyCount(firstShard)).toBe(0);
      expect(await context.fixture.tags.count()).toBe(0);
    });

    test('allows a stale attempt to run again', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('100') });
      const keys = Array.from({ length: 4 }, (_unused, index) => keyed(`k-${index}`));
      const retry = { attemptsMax: 50 };
      await Promise.all(keys.map((key) => context.withdraw(account, '1', { ...key, retry })));
      expect(await context.accounts.getById(account.id)).toMatchObject({
        version: 5,
        balance: decimal('96'),
      });
    });

    test.each([firstShard, otherDatabaseShard])(
      'creates one model on %s, although the params do not contain its id',
      async (shard) => {
        const params = { owner: 'ada', group: shard.group };
        const open = (): Promise<Account> =>
          context.executor.execute(principal, OpenAccountAction, params, keyed('k-1'));
        const accounts = await Promise.all([open(), open(), open()]);
        expect([await open(), ...accounts]).toEqual(Array.from({ length: 4 }, () => accounts[0]));
        expect(await context.accounts.findByOwner('ada')).toEqual([accounts[0]]);
      },
    );

    test('works for an action that stages nothing, on the shard that its params name', async () => {
      const account = await context.openAccount(otherDatabaseShard, { owner: 'ada' });
      const params = { accountId: account.id };
      const find = (): Promise<string> =>
        context.executor.execute(principal, FindOwnerAction, params, keyed('k-1'));
      expect([await find(), await find()]).toEqual(['ada', 'ada']);
      expect(await context.storedEvents(otherDatabaseShard)).toHaveLength(2);
      expect(await context.fixture.keyCount(otherDatabaseShard)).toBe(1);
    });

    test.each<[string, (account: Account) => Promise<Account | undefined>]>([
      ['its id', ({ id }) => context.accounts.getById(id)],
      ['its ids', async ({ id }) => (await context.accounts.findAllByIds([id]))[0]],
      ['a query', async () => (await context.accounts.findAll())[0]],
    ])(
      'recognises a repeat that has nothing left to do after reading on another shard by %s',
      async (_what, read) => {
        const account = await context.openAccount(otherDatabaseShard);
        const key = keyed('k-1');
        const settle = (): Promise<void> =>
          context.stage(async (plan) => {
            const current = await read(account);
            if (current?.version === 1) plan.update(current.annotate('settled'));
          }, key);
        await settle();
        await settle();
        expect(replaysOf(key)).toBe(1);
        expect([
          await context.fixture.keyCount(firstShard),
          await context.fixture.keyCount(otherDatabaseShard),
        ]).toEqual([0, 1]);
      },
    );

    test('returns the first result to a repeat that now has something to do, if nothing was read or done at first', async () => {
      const account = await context.openAccount(otherDatabaseShard);
      const key = keyed('k-1');
      let isDue = false;
      const settle = (): Promise<void> =>
        context.stage((plan) => void (isDue && plan.update(account.annotate('settled'))), key);
      await settle();
      isDue = true;
      await settle();
      expect(replaysOf(key)).toBe(1);
      expect(await context.accounts.getById(account.id)).toEqual(account);
    });

    test('works for a plan of several statements, repeated 10 times at once', async () => {
      const key = keyed('k-1');
      await Promise.all(
        Array.from({ length: 10 }, () => context.stage((plan) => plan.addAll(newAccounts(100)), key)),
      );
      expect(replaysOf(key)).toBe(9);
      expect(await context.accounts.count()).toBe(100);
      expect(await context.storedEvents()).toHaveLength(100);
    });

    test('is one key for all shards of a database', async () => {
      const one = await context.openAccount(firstShard);
      const other = await context.openAccount(sameDatabaseShard);
      await context.withdraw(one, '0', keyed('k-1'));
      await expect(context.withdraw(other, '0', keyed('k-1'))).rejects.toMatchObject({
        code: 'idempotency-key-reused',
      });
      expect(await context.accounts.getById(other.id)).toEqual(other);
    });

    test('cannot be used with several shards', async () => {
      const accounts = [firstShard, otherDatabaseShard].map((shard) =>
        Account.open(shard, systemClock.now()),
      );
      const add = (configuration: ExecutionConfiguration): Promise<void> =>
        context.stage((plan) => plan.addAll(accounts), configuration);
      await expect(add(keyed('k-1'))).rejects.toMatchObject({ code: 'cross-shard' });
      await expect(add({ ...keyed('k-1'), allowCrossShard: true })).rejects.toMatchObject({
        code: 'invariant-violation',
      });
      expect(await context.accounts.count()).toBe(0);
      expect(await context.fixture.keyCount(firstShard)).toBe(0);
    });
  });

  test('finds a different request with the same idempotency key on any shard', async () => {
    const one = await context.openAccount(firstShard);
    const other = await context.openAccount(otherDatabaseShard);
    await context.withdraw(one, '0', { idempotencyKey: 'k-1' });
    await expect(context.withdraw(other, '0', { idempotencyKey: 'k-1' })).rejects.toMatchObject({
      code: 'idempotency-key-reused',
    });
    expect(await context.accounts.getById(other.id)).toEqual(other);
  });
}

function newAccounts(count: number): readonly Account[] {
  return Array.from({ length: count }, () => Account.open(firstShard, systemClock.now()));
}

const expiring = { idempotencyKey: 'k-1' };

/** Registers tests which check that an expired key counts as absent, before and after it is deleted. */
export function describeKeyExpiry(context: SuiteContext): void {
  describe('an expired idempotency key', () => {
    test('is taken over by a repeat, which takes effect again', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      await context.withdraw(account, '1', expiring);
      await context.fixture.expireKeys();
      expect(await context.withdraw(account, '1', expiring)).toMatchObject({
        version: 3,
        balance: decimal('8'),
      });
      expect(await context.withdraw(account, '1', expiring)).toMatchObject({
        version: 3,
        balance: decimal('8'),
      });
      expect(await context.fixture.keyCount(firstShard)).toBe(1);
    });

    test('is taken over by a different request', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      await context.withdraw(account, '1', expiring);
      await context.fixture.expireKeys();
      expect(await context.withdraw(account, '2', expiring)).toMatchObject({ balance: decimal('7') });
      await expect(context.withdraw(account, '1', expiring)).rejects.toMatchObject({
        code: 'idempotency-key-reused',
      });
    });

    test('is taken over by only one of 50 simultaneous requests', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      await context.withdraw(account, '1', expiring);
      await context.fixture.expireKeys();
      const results = await Promise.all(
        Array.from({ length: 50 }, () => context.withdraw(account, '1', expiring)),
      );
      expect(results.map(({ version }) => version)).toEqual(Array.from({ length: 50 }, () => 3));
      expect(await context.storedEvents()).toHaveLength(3);
    });

    test('is deleted in steps no larger than requested', async () => {
      const account = await context.openAccount(firstShard);
      for (let index = 0; index < 5; index++)
        await context.withdraw(account, '0', { idempotencyKey: `k-${index}` });
      const { keys } = context.fixture.databases.transactionManager(firstShard);
      expect(await keys.deleteExpired(3)).toBe(0);
      await context.fixture.expireKeys();
      expect([await keys.deleteExpired(3), await keys.deleteExpired(3)]).toEqual([3, 2]);
      expect(await context.fixture.keyCount(firstShard)).toBe(0);
    });
  });
}

const eventId = '01900000-0000-7000-8000-000000000001';
const handledEvent = { handler: 'notify', eventId, shard: firstShard };
const byHandler = { idempotencyKey: 'k-1', handledEvent };
const byClient = { idempotencyKey: 'k-1' };
const now = { olderThanMs: 0, limit: 10 };

/** Registers tests which check that handlers' keys are separate from those of clients, and stay until they are deleted by name. */
export function describeHandlerKeys(context: SuiteContext): void {
  describe('an idempotency key of a handler', () => {
    test('is different from the same key of a client', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      await context.withdraw(account, '1', byClient);
      expect(await context.withdraw(account, '2', byHandler)).toMatchObject({ balance: decimal('7') });
      expect(await context.withdraw(account, '2', byHandler)).toMatchObject({ balance: decimal('7') });
      expect(await context.withdraw(account, '1', byClient)).toMatchObject({ balance: decimal('9') });
      expect(
        await context.fixture.databases.transactionManager(firstShard).keys.findHandlerKeys(now),
      ).toMatchObject({
        items: [{ key: 'k-1', source: `0/0 ${eventId} notify` }],
        next: undefined,
      });
    });

    test('is listed in pages once it is old enough, and deleted by its name', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      for (let index = 0; index < 5; index++)
        await context.withdraw(account, '1', { ...byHandler, idempotencyKey: `k-${index}` });
      const keys = context.fixture.databases.transactionManager(firstShard).keys;
      expect((await keys.findHandlerKeys({ ...now, olderThanMs: 3_600_000 })).items).toEqual([]);
      const found: string[] = [];
      let after: string | undefined;
      do {
        const page = await keys.findHandlerKeys({ ...now, limit: 2, ...(after !== undefined && { after }) });
        found.push(...page.items.map(({ key }) => key));
        after = page.next;
        // A deletion between two pages does not shift the next one.
        expect(await keys.delete(page.items.slice(0, 1))).toBe(1);
      } while (after !== undefined);
      expect(found).toEqual(['k-0', 'k-1', 'k-2', 'k-3', 'k-4']);
      expect((await keys.findHandlerKeys(now)).items.map(({ key }) => key)).toEqual(['k-1', 'k-3']);
      expect(await keys.deleteExpired(10)).toBe(0);
    });

    test('is deleted only by its full name', async () => {
      const account = await context.openAccount(firstShard, { balance: decimal('10') });
      await context.withdraw(account, '1', byHandler);
      const { keys } = context.fixture.databases.transactionManager(firstShard);
      for (const found of (await keys.findHandlerKeys(now)).items) {
        for (const difference of [{ key: 'k-2' }, { principal: 'nobody' }, { namespace: 'elsewhere' }])
          expect(await keys.delete([{ ...found, ...difference }])).toBe(0);
        expect(await keys.delete([found])).toBe(1);
      }
      expect((await keys.findHandlerKeys(now)).items).toEqual([]);
    });
  });
}

import { FrameworkException, systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account } from '../domain/account.js';
import { type SuiteContext, abroad, home, neighbour } from '../suite-context.js';

/** Registers `inTransaction`, and which calls join it. */
export function describeTransactions(context: SuiteContext): void {
  const onShard = (shard = home) => context.fixture.databases.transactionManager(shard);

  describe('inTransaction', () => {
    it('commits when the work resolves, and gives its result', async () => {
      const account = await context.openAccount();
      const result = await onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'kept');
        return 42;
      });
      expect(result).toBe(42);
      expect(await context.accounts.getById(account.id)).toMatchObject({ note: 'kept' });
    });

    it('rolls back when the work rejects, and passes the error on', async () => {
      const account = await context.openAccount();
      const failure = new Error('changed my mind');
      const work = onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'lost');
        throw failure;
      });
      await expect(work).rejects.toBe(failure);
      expect(await context.accounts.getById(account.id)).toMatchObject({ note: null });
    });

    it('is joined by what its work gives and what begins only when it is awaited', async () => {
      const isJoined = onShard().inTransaction(() => lazily(async () => onShard().isInTransaction()));
      expect(await isJoined).toBe(true);
    });

    it('is joined by every read of a repository', async () => {
      const account = await context.openAccount(home, { owner: 'ada' });
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

    it('is joined by reads of a condition on a shard that shares its database', async () => {
      const account = await context.openAccount(neighbour, { owner: 'ada' });
      await onShard(neighbour).inTransaction(async () => {
        await context.fixture.overwriteNote(account, 'inside');
        expect(await context.accounts.findByOwner('ada')).toMatchObject([{ note: 'inside' }]);
        expect(await context.accounts.count()).toBe(1);
      });
    });

    it('is not seen from outside before it commits', async () => {
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

    it('is refused within another one on the same shard', async () => {
      const nested = onShard().inTransaction(() => onShard().inTransaction(async () => 'never'));
      await expect(nested).rejects.toMatchObject({ code: 'nested-transaction', shard: home });
    });

    it('is possible within another one on another shard', async () => {
      const [here, there] = [await context.openAccount(home), await context.openAccount(abroad)];
      await onShard().inTransaction(async () => {
        await context.fixture.overwriteNote(here, 'outer');
        await onShard(abroad).inTransaction(() => context.fixture.overwriteNote(there, 'inner'));
        expect(await context.accounts.getById(here.id)).toMatchObject({ note: 'outer' });
      });
      const notes = (await context.accounts.findAllByIds([here.id, there.id])).map(({ note }) => note);
      expect(notes).toEqual(['outer', 'inner']);
    });

    it('refuses to execute an action on the same shard', async () => {
      const account = await context.openAccount();
      const executed = onShard().inTransaction(() => context.credit(account, '1'));
      await expect(executed).rejects.toMatchObject({ code: 'nested-transaction', shard: home });
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(await context.storedEvents()).toHaveLength(1);
    });

    it('lets an action run on another shard', async () => {
      const account = await context.openAccount(abroad);
      await onShard().inTransaction(() => context.credit(account, '1'));
      expect(await context.accounts.getById(account.id)).toMatchObject({ version: 2 });
    });

    it('refuses what is still done in it after it ended', async () => {
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
        // A query builder may wrap the refusal of a statement of its own.
        const refusal = FrameworkException.find(await call.catch((error: unknown) => error));
        expect(refusal).toMatchObject({ code: 'transaction-over', shard: home });
      }
      expect(await context.accounts.getById(account.id)).toEqual(account);
    });

    it('leaves no trace for what follows it', async () => {
      await expect(onShard().inTransaction(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
      await context.stage((plan) => plan.add(Account.open(home, systemClock.now())));
      expect(await onShard().inTransaction(() => context.accounts.count())).toBe(1);
    });
  });
}

function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}

/** As a query of Drizzle: nothing happens until somebody waits for it. */
function lazily<T>(work: () => Promise<T>): Promise<T> {
  // oxlint-disable-next-line unicorn/no-thenable -- that is what such a query is
  const lazy: PromiseLike<T> = { then: (resolve, reject) => work().then(resolve, reject) };
  return lazy as Promise<T>;
}

import { describe, expect, it } from 'vitest';
import { decimal } from '../domain/decimal-text.js';
import { type SuiteContext, home } from '../suite-context.js';

const eventId = '01900000-0000-7000-8000-000000000001';
const handledEvent = { handler: 'notify', eventId, shard: home };
const byHandler = { idempotencyKey: 'k-1', handledEvent };
const byClient = { idempotencyKey: 'k-1' };
const now = { olderThanMs: 0, limit: 10 };

/** Registers that keys of handlers are apart from those of clients, and stay until they are deleted by name. */
export function describeHandlerKeys(context: SuiteContext): void {
  describe('an idempotency key of a handler', () => {
    it('is another one than the same key of a client', async () => {
      const account = await context.openAccount(home, { balance: decimal('10') });
      await context.withdraw(account, '1', byClient);
      expect(await context.withdraw(account, '2', byHandler)).toMatchObject({ balance: decimal('7') });
      expect(await context.withdraw(account, '2', byHandler)).toMatchObject({ balance: decimal('7') });
      expect(await context.withdraw(account, '1', byClient)).toMatchObject({ balance: decimal('9') });
      expect(
        await context.fixture.databases.transactionManager(home).keys.findHandlerKeys(now),
      ).toMatchObject({
        items: [{ key: 'k-1', source: `0/0 ${eventId} notify` }],
        next: undefined,
      });
    });

    it('is found page by page once it is old enough, and deleted by its name', async () => {
      const account = await context.openAccount(home, { balance: decimal('10') });
      for (let index = 0; index < 5; index++)
        await context.withdraw(account, '1', { ...byHandler, idempotencyKey: `k-${index}` });
      const keys = context.fixture.databases.transactionManager(home).keys;
      expect((await keys.findHandlerKeys({ ...now, olderThanMs: 3_600_000 })).items).toEqual([]);
      const found: string[] = [];
      let after: string | undefined;
      do {
        const page = await keys.findHandlerKeys({ ...now, limit: 2, ...(after !== undefined && { after }) });
        found.push(...page.items.map(({ key }) => key));
        after = page.next;
        // What is deleted meanwhile moves nothing.
        expect(await keys.delete(page.items.slice(0, 1))).toBe(1);
      } while (after !== undefined);
      expect(found).toEqual(['k-0', 'k-1', 'k-2', 'k-3', 'k-4']);
      expect((await keys.findHandlerKeys(now)).items.map(({ key }) => key)).toEqual(['k-1', 'k-3']);
      expect(await keys.deleteExpired(10)).toBe(0);
    });

    it('is deleted by its whole name only', async () => {
      const account = await context.openAccount(home, { balance: decimal('10') });
      await context.withdraw(account, '1', byHandler);
      const { keys } = context.fixture.databases.transactionManager(home);
      for (const found of (await keys.findHandlerKeys(now)).items) {
        for (const difference of [{ key: 'k-2' }, { principal: 'nobody' }, { namespace: 'elsewhere' }])
          expect(await keys.delete([{ ...found, ...difference }])).toBe(0);
        expect(await keys.delete([found])).toBe(1);
      }
      expect((await keys.findHandlerKeys(now)).items).toEqual([]);
    });
  });
}

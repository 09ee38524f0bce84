import { describe, expect, it } from 'vitest';
import { decimal } from '../domain/decimal-text.js';
import { type SuiteContext, home } from '../suite-context.js';

const key = { idempotencyKey: 'k-1' };

/** Registers that expired keys are as good as none, before and after they are deleted. */
export function describeKeyExpiry(context: SuiteContext): void {
  describe('an expired idempotency key', () => {
    it('is taken over by a repeat, which has an effect', async () => {
      const account = await context.openAccount(home, { balance: decimal('10') });
      await context.withdraw(account, '1', key);
      await context.fixture.expireKeys();
      expect(await context.withdraw(account, '1', key)).toMatchObject({ version: 3, balance: decimal('8') });
      expect(await context.withdraw(account, '1', key)).toMatchObject({ version: 3, balance: decimal('8') });
      expect(await context.fixture.keyCount(home)).toBe(1);
    });

    it('is taken over by another request', async () => {
      const account = await context.openAccount(home, { balance: decimal('10') });
      await context.withdraw(account, '1', key);
      await context.fixture.expireKeys();
      expect(await context.withdraw(account, '2', key)).toMatchObject({ balance: decimal('7') });
      await expect(context.withdraw(account, '1', key)).rejects.toMatchObject({
        code: 'idempotency-key-reused',
      });
    });

    it('is taken over by one of 50 at once', async () => {
      const account = await context.openAccount(home, { balance: decimal('10') });
      await context.withdraw(account, '1', key);
      await context.fixture.expireKeys();
      const results = await Promise.all(
        Array.from({ length: 50 }, () => context.withdraw(account, '1', key)),
      );
      expect(results.map(({ version }) => version)).toEqual(Array.from({ length: 50 }, () => 3));
      expect(await context.storedEvents()).toHaveLength(3);
    });

    it('is deleted, no more at once than asked for', async () => {
      const account = await context.openAccount(home);
      for (let index = 0; index < 5; index++)
        await context.withdraw(account, '0', { idempotencyKey: `k-${index}` });
      const { keys } = context.fixture.databases.transactionManager(home);
      expect(await keys.deleteExpired(3)).toBe(0);
      await context.fixture.expireKeys();
      expect([await keys.deleteExpired(3), await keys.deleteExpired(3)]).toEqual([3, 2]);
      expect(await context.fixture.keyCount(home)).toBe(0);
    });
  });
}

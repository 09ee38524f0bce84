import { ShardedId, systemClock } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { Account } from '../domain/account.js';
import { type SuiteContext, abroad, home, neighbour, unknown } from '../suite-context.js';

/** Registers that rows and events stand on the shard that the id names, and nowhere else. */
export function describePlacement(context: SuiteContext): void {
  describe('placement', () => {
    it.each([home, abroad])('puts row and event on %s only', async (shard) => {
      const account = await context.openAccount(shard);
      const [here, elsewhere] = shard === home ? [home, abroad] : [abroad, home];
      expect(await context.storedEvents(here)).toMatchObject([{ modelId: account.id.value }]);
      expect(await context.storedEvents(elsewhere)).toEqual([]);
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(account.id.resolveShardIdentifier()).toBe(shard);
    });

    it('lets two shards share a database, each with its own models', async () => {
      const one = await context.openAccount(home);
      const other = await context.openAccount(neighbour);
      expect(await context.accounts.findAllByIds([other.id, one.id])).toEqual([other, one]);
      const credited = await context.credit(other, '1');
      expect(await context.accounts.getById(other.id)).toEqual(credited);
      expect(await context.storedEvents(abroad)).toEqual([]);
    });

    it('refuses to read a shard that is not configured', async () => {
      const id = ShardedId.generate(Account, unknown);
      const refusal = { code: 'unknown-shard', shard: unknown };
      await expect(context.accounts.getById(id)).rejects.toMatchObject(refusal);
      await expect(context.accounts.findById(id)).rejects.toMatchObject(refusal);
      await expect(context.accounts.existsById(id)).rejects.toMatchObject(refusal);
      await expect(context.accounts.findAllByIds([id])).rejects.toMatchObject(refusal);
      expect(() => context.fixture.databases.transactionManager(unknown)).toThrow(
        expect.objectContaining(refusal) as Error,
      );
    });

    it('refuses to write to a shard that is not configured, before another one is written', async () => {
      const refused = context.stage(
        (plan) => plan.addAll([home, unknown].map((shard) => Account.open(shard, systemClock.now()))),
        { allowCrossShard: true },
      );
      await expect(refused).rejects.toMatchObject({ code: 'unknown-shard', shard: unknown });
      expect(await context.accounts.count()).toBe(0);
      expect(await context.storedEvents()).toEqual([]);
    });

    it('refuses text that is no id', async () => {
      await expect(context.accounts.getById('no id')).rejects.toMatchObject({ code: 'invalid-id' });
      await expect(context.accounts.findAllByIds([''])).rejects.toMatchObject({ code: 'invalid-id' });
    });
  });
}

import { ShardedId, systemClock } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { TransferAction } from '../account-actions.js';
import { Account, Tag, decimal } from '../account.js';
import {
  type SuiteContext,
  otherDatabaseShard,
  firstShard,
  sameDatabaseShard,
  once,
  principal,
  unknown,
} from '../suite-context.js';

const allowed = { allowCrossShard: true, ...once };

/** Registers tests of a plan that spans shards. */
export function describeCrossShard(context: SuiteContext): void {
  describe('a plan over several shards', () => {
    test.each([
      ['in different databases', otherDatabaseShard],
      ['in one database', sameDatabaseShard],
    ])('is refused before anything is written, for shards %s', async (_where, shard) => {
      const from = await context.openAccount(firstShard);
      const to = await context.openAccount(shard);
      const params = { fromId: from.id, toId: to.id, amount: '1' };
      await expect(context.executor.execute(principal, TransferAction, params)).rejects.toMatchObject({
        code: 'cross-shard',
        shards: [firstShard, shard],
      });
      expect(await context.accounts.findAllByIds([from.id, to.id])).toEqual([from, to]);
      expect(
        (await context.storedEvents(firstShard)).length +
          (await context.storedEvents(otherDatabaseShard)).length,
      ).toBe(2);
    });

    test('writes the events of each shard with its models, under one action, when it is allowed', async () => {
      const from = await context.openAccount(otherDatabaseShard, { balance: decimal('5') });
      const to = await context.openAccount(firstShard);
      const params = { fromId: from.id, toId: to.id, amount: '2' };
      await context.executor.execute(principal, TransferAction, params, allowed);
      const [sent] = (await context.storedEvents(otherDatabaseShard)).slice(1);
      const [received] = (await context.storedEvents(firstShard)).slice(1);
      expect(sent).toMatchObject({ modelId: from.id.value, ordinal: 0, modelVersion: 2 });
      expect(received).toMatchObject({ modelId: to.id.value, ordinal: 1, modelVersion: 2 });
      expect(received?.actionId).toBe(sent?.actionId);
      const balances = (await context.accounts.findAllByIds([from.id, to.id])).map(({ balance }) => balance);
      expect(balances).toEqual([decimal('3'), decimal('2')]);
    });

    test('leaves one record row on a shard for which it attached no event', async () => {
      await context.stage((plan) => {
        plan.add(Account.open(firstShard, systemClock.now()));
        plan.addAll([Tag.of(otherDatabaseShard, 'one'), Tag.of(otherDatabaseShard, 'two')]);
      }, allowed);
      const [event] = await context.storedEvents(firstShard);
      const records = await context.storedEvents(otherDatabaseShard);
      expect(records).toHaveLength(1);
      expect(records[0]).toMatchObject({ eventType: null, modelId: null, actionId: event?.actionId });
    });

    test('leaves one record row for each shard of a database', async () => {
      await context.stage(
        (plan) => plan.addAll([Tag.of(firstShard, 'one'), Tag.of(sameDatabaseShard, 'two')]),
        allowed,
      );
      const records = await context.storedEvents(firstShard);
      expect(records).toHaveLength(2);
      expect(new Set(records.map(({ actionId }) => actionId)).size).toBe(1);
      expect(new Set(records.map(({ id }) => id)).size).toBe(2);
    });

    test('names the committed and the failed shards when a later shard fails', async () => {
      const first = await context.openAccount(firstShard);
      const stale = await context.openAccount(otherDatabaseShard);
      await context.credit(stale, '1');
      const partial = context.stage(
        (plan) => plan.updateAll([stale.credit('100'), first.credit('1')]),
        allowed,
      );
      await expect(partial).rejects.toMatchObject({
        code: 'partial-commit',
        committed: [firstShard],
        failed: [otherDatabaseShard],
        cause: { code: 'stale-record', id: stale.id.value },
      });
      expect(await context.accounts.getById(first.id)).toMatchObject({ version: 2 });
      expect(await context.accounts.getById(stale.id)).toMatchObject({ balance: decimal('1') });
      expect(await context.storedEvents(otherDatabaseShard)).toHaveLength(2);
    });

    test('writes nothing when the first shard fails', async () => {
      const stale = await context.openAccount(firstShard);
      const later = await context.openAccount(otherDatabaseShard);
      await context.credit(stale, '1');
      const refused = context.stage(
        (plan) => plan.updateAll([later.credit('1'), stale.credit('100')]),
        allowed,
      );
      await expect(refused).rejects.toMatchObject({ code: 'stale-record' });
      expect(await context.accounts.getById(later.id)).toEqual(later);
      expect(await context.storedEvents(otherDatabaseShard)).toHaveLength(1);
    });
  });
}

/** Registers tests which check that rows and events are on the shard that the id names, and nowhere else. */
export function describePlacement(context: SuiteContext): void {
  describe('placement', () => {
    test.each([firstShard, otherDatabaseShard])('writes the row and the event only to %s', async (shard) => {
      const account = await context.openAccount(shard);
      const [here, elsewhere] =
        shard === firstShard ? [firstShard, otherDatabaseShard] : [otherDatabaseShard, firstShard];
      expect(await context.storedEvents(here)).toMatchObject([{ modelId: account.id.value }]);
      expect(await context.storedEvents(elsewhere)).toEqual([]);
      expect(await context.accounts.getById(account.id)).toEqual(account);
      expect(account.id.resolveShardIdentifier()).toBe(shard);
    });

    test('lets two shards share a database, each with its own models', async () => {
      const one = await context.openAccount(firstShard);
      const other = await context.openAccount(sameDatabaseShard);
      expect(await context.accounts.findAllByIds([other.id, one.id])).toEqual([other, one]);
      const credited = await context.credit(other, '1');
      expect(await context.accounts.getById(other.id)).toEqual(credited);
      expect(await context.storedEvents(otherDatabaseShard)).toEqual([]);
    });

    test('refuses to read an unconfigured shard', async () => {
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

    test('refuses to write to a shard that is not configured, before it writes to another one', async () => {
      const refused = context.stage(
        (plan) => plan.addAll([firstShard, unknown].map((shard) => Account.open(shard, systemClock.now()))),
        { allowCrossShard: true },
      );
      await expect(refused).rejects.toMatchObject({ code: 'unknown-shard', shard: unknown });
      expect(await context.accounts.count()).toBe(0);
      expect(await context.storedEvents()).toEqual([]);
    });

    test('refuses text that is not an id', async () => {
      await expect(context.accounts.getById('no id')).rejects.toMatchObject({ code: 'invalid-id' });
      await expect(context.accounts.findAllByIds([''])).rejects.toMatchObject({ code: 'invalid-id' });
    });
  });
}

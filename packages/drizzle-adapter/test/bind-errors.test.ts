// @module-tag postgres
import { systemClock } from '@framework/core';
import { Account, firstShard, once } from '@framework/conformance';
import { createTestDatabase } from '@framework/testing/postgres';
import { expect, onTestFinished, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';

test.each([
  ['many statements', 100, 50],
  ['one statement', 3, 1],
])('a plan of %s writes nothing when one of its values cannot be sent', async (_what, count, place) => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
  const suite = suiteOn(registry, { groupCommit: false });
  const manager = registry.transactionManager(firstShard);
  const persist = manager.persist.bind(manager);
  const unsendable = {
    toPostgres: (): never => {
      throw new Error('this cannot be sent');
    },
  };
  let tampered = -1;
  manager.persist = (changes) => {
    const { values } = changes.changes[place]!.row as { readonly values: unknown[] };
    tampered = values.indexOf('nobody');
    values[tampered] = unsendable;
    return persist(changes);
  };
  const accounts = Array.from({ length: count }, () => Account.open(firstShard, systemClock.now()));
  const failed = suite.stage((plan) => void plan.addAll(accounts), once);
  await expect(failed).rejects.toMatchObject({ code: 'unstorable-value' });
  expect(tampered).toBeGreaterThan(0);
  expect(await suite.accounts.count()).toBe(0);
  manager.persist = persist;
  await suite.stage((plan) => void plan.addAll(accounts), once);
  expect(await suite.accounts.count()).toBe(count);
});

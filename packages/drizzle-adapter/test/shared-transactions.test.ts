import { firstShard } from '@framework/conformance';
import { createTestDatabase } from '@framework/testing/postgres';
import { expect, onTestFinished, test } from 'vitest';
import { openRegistry, suiteOn } from './fixtures/open-registry.js';
import { query } from './fixtures/query.js';

const accountCount = 16;

test('concurrent executions of a suite share transactions', async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const registry = openRegistry([{ group: 0, member: 0, url: database.url }]);
  await registry.ready();
  const suite = suiteOn(registry, { groupCommit: true });
  await Promise.all(Array.from({ length: accountCount }, () => suite.openAccount(firstShard)));
  const transactions = await query(database.url, 'select distinct xmin::text from accounts');
  expect(transactions.length).toBeGreaterThan(0);
  expect(transactions.length).toBeLessThan(accountCount);
});

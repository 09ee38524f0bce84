import { expect, test, vi } from 'vitest';
import { memoryManager } from '../../src/memory/index.js';
import { TestEnvironment } from '../../src/specification/index.js';
import { CreditAccountAction, account, accountEnvironment, firstShard } from './accounts.js';

test('concurrent actions of an environment are written together', async () => {
  const environment = await TestEnvironment.open({ ...accountEnvironment, groupCommit: true });
  const accounts = Array.from({ length: 8 }, () => account());
  await environment.store(...accounts);
  const persistAll = vi.spyOn(
    memoryManager(environment.databases.transactionManager(firstShard)),
    'persistAll',
  );
  const credits = accounts.map(({ id: accountId }) =>
    environment.execute(CreditAccountAction, { accountId, amount: '1' }),
  );
  expect(await Promise.all(credits)).toHaveLength(accounts.length);
  expect(persistAll).toHaveBeenCalled();
});

import { expect, it, vi } from 'vitest';
import { memoryManager } from '../../src/memory/index.js';
import { World } from '../../src/specification/index.js';
import { CreditAccountAction, account, accountWorld, home } from './accounts.js';

it('concurrent executions of a world are written together', async () => {
  const world = await World.open(accountWorld);
  const accounts = Array.from({ length: 8 }, () => account());
  await world.store(...accounts);
  const persistAll = vi.spyOn(memoryManager(world.databases.transactionManager(home)), 'persistAll');
  const credits = accounts.map(({ id: accountId }) =>
    world.execute(CreditAccountAction, { accountId, amount: '1' }),
  );
  expect(await Promise.all(credits)).toHaveLength(accounts.length);
  expect(persistAll).toHaveBeenCalled();
});

import { expect, test } from 'vitest';

import { executorOf, mexico, openWallet } from '../../test/test-executor.js';
import { ExecutionConfiguration } from './execution-configuration.js';

test('a built configuration allows what it names, as a plain object does', async () => {
  const running = executorOf(async (plan) => plan().addAll([openWallet(), openWallet(mexico)]));
  const { Builder } = ExecutionConfiguration;
  await expect(running.execute({}, Builder.executionConfiguration().build())).rejects.toMatchObject({
    code: 'cross-shard',
    name: 'CrossShardException',
  });
  await running.execute({}, Builder.executionConfiguration().allowCrossShard(true).build());
  expect(running.driver.committed).toHaveLength(2);
});

test('a builder that is used twice keeps what was built', () => {
  const keyed = ExecutionConfiguration.Builder.executionConfiguration().idempotencyKey('k');
  const once = keyed.retry({ attemptsMax: 1 }).build();
  expect(keyed.groupCommit(false).build()).toEqual({ idempotencyKey: 'k', groupCommit: false });
  expect(once).toEqual({ idempotencyKey: 'k', retry: { attemptsMax: 1 } });
});

import { FrameworkError, ShardIdentifier } from '@framework/core';
import { IncreaseCounterAction, OpenCounterAction } from './counter-actions.ts';
import { openCounters } from './open-counters.ts';

// Two shards, each in a database of its own. Nothing but the composition knows that there are two.
const { databases, repository, executor, ready } = openCounters(
  process.env['DATABASE_URL'],
  process.env['SECOND_DATABASE_URL'],
);
await ready();

const you = { name: 'reader' };
const shards = [ShardIdentifier.of(0, 0), ShardIdentifier.of(1, 0)] as const;
for (const [index, shard] of shards.entries()) {
  const { id } = await executor.execute(you, OpenCounterAction, { shard });
  const { value } = await executor.execute(you, IncreaseCounterAction, { id, by: 5 + index });
  // The id alone says where the counter is.
  console.log(`value ${value} on ${String(id.resolveShardIdentifier())}`);
}

// A page has the counters of both shards, in one order.
const { items } = await repository.findPage({ limit: 10, orderBy: 'value', direction: 'descending' });
console.log(`values ${items.map(({ value }) => value).join(', ')} on all shards`);
// Or those of one shard, if a client may see only that one.
const [, second] = shards;
const there = await repository.findPage({ limit: 10, shard: second });
console.log(`values ${there.items.map(({ value }) => value).join(', ')} on ${String(second)}`);

// The requested shard is checked before anything is written.
try {
  await executor.execute(you, OpenCounterAction, { shard: ShardIdentifier.of(2, 0) });
} catch (error) {
  console.log(FrameworkError.find(error)?.code);
}
await databases.close();

import { ShardIdentifier } from '@framework/core';
import { IncreaseCounterAction, OpenCounterAction } from './counter-actions.ts';
import { openCounters } from './open-counters.ts';

// One shard, in the database from DATABASE_URL.
const { databases, executor, ready } = openCounters(process.env['DATABASE_URL']);
await ready();

const you = { name: 'reader' };
const { id } = await executor.execute(you, OpenCounterAction, { shard: ShardIdentifier.of(0, 0) });
// A second request with the same key gets the first answer again.
const once = { idempotencyKey: `increase ${id.value}` };
await executor.execute(you, IncreaseCounterAction, { id, by: 5 }, once);
const counter = await executor.execute(you, IncreaseCounterAction, { id, by: 5 }, once);
console.log(`value ${counter.value}, version ${counter.version}`); // value 5, version 2
await databases.close();

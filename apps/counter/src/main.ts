import {
  ActionExecutor,
  ShardIdentifier,
  openDatabases,
  parseFrameworkConfig,
  systemClock,
} from '@framework/core';
import { PgRepository, postgres } from '@framework/drizzle-adapter';
import { sql } from 'drizzle-orm';
import { IncreaseCounterAction, OpenCounterAction } from './counter-actions.ts';
import { Counter } from './counter.ts';
import { counters } from './counters-table.ts';

// One shard, in the database from DATABASE_URL.
const primary = { 'jdbc-url': process.env['DATABASE_URL'] };
const members = [{ member: 0, name: 'global-1', configs: { 'primary-config': primary } }];
const groups = [{ group: 0, name: 'global', members }];
const { namespace, sharding } = parseFrameworkConfig({
  framework: { namespace: 'com.example', sharding: { 'default-shard': { group: 0, member: 0 }, groups } },
});

const databases = openDatabases(sharding, postgres());
const repository = new PgRepository({ model: Counter, table: counters, databases });
const executor = new ActionExecutor({
  namespace,
  databases,
  repositories: [repository],
  actions: [new OpenCounterAction(systemClock), new IncreaseCounterAction(systemClock, repository)],
});

await databases.ready();
await repository.dbs()[0]?.execute(sql`create table if not exists counters (
  id uuid primary key, state text not null, version bigint not null,
  created_date timestamptz not null, updated_date timestamptz not null, value integer not null)`);

const you = { name: 'reader' };
const { id } = await executor.execute(you, OpenCounterAction, { shard: ShardIdentifier.of(0, 0) });
// A second request with the same key gets the first answer again.
const once = { idempotencyKey: `increase ${id.value}` };
await executor.execute(you, IncreaseCounterAction, { id, by: 5 }, once);
const counter = await executor.execute(you, IncreaseCounterAction, { id, by: 5 }, once);
console.log(`value ${counter.value}, version ${counter.version}`); // value 5, version 2
await databases.close();

import {
  ActionExecutor,
  type DatabaseRegistry,
  type Repository,
  openDatabases,
  parseFrameworkConfig,
  systemClock,
} from '@framework/core';
import { PgRepository, postgres } from '@framework/drizzle-adapter';
import { sql } from 'drizzle-orm';
import { IncreaseCounterAction, OpenCounterAction } from './counter-actions.ts';
import { Counter } from './counter.ts';
import { counters } from './counters-table.ts';

/** The application: its parts, connected to its databases. */
export interface Counters {
  readonly databases: DatabaseRegistry;
  readonly repository: Repository<Counter>;
  readonly executor: ActionExecutor;
  /** Resolves when the databases are ready and have the table. */
  readonly ready: () => Promise<void>;
}

/** Connects the application to one database for each of its shards: (0, 0), (1, 0) and so on. */
export function openCounters(...urls: readonly (string | undefined)[]): Counters {
  const groups = urls.map((url, group) => {
    const configs = { 'primary-config': { 'jdbc-url': url } };
    return { group, name: `group-${group}`, members: [{ member: 0, name: `shard-${group}`, configs }] };
  });
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

  async function ready(): Promise<void> {
    await databases.ready();
    for (const database of repository.dbs())
      await database.execute(sql`create table if not exists counters (
        id uuid primary key, state text not null, version bigint not null,
        created_date timestamptz not null, updated_date timestamptz not null, value integer not null)`);
  }
  return { databases, repository, executor, ready };
}

import {
  ActionExecutor,
  FrameworkError,
  type ErrorCode,
  openDatabases,
  parseFrameworkConfig,
  systemClock,
} from '@framework/core';
import { PgRepository, postgres } from '@framework/drizzle-adapter';
import { sql } from 'drizzle-orm';
import { IncreaseCounterAction, OpenCounterAction } from '../counter/counter-actions.ts';
import { Counter } from '../counter/counter.ts';
import { counters } from '../counter/counters-table.ts';

const primary = { 'jdbc-url': process.env['DATABASE_URL'] };
const members = [{ member: 0, name: 'global-1', configs: { 'primary-config': primary } }];
const groups = [{ group: 0, name: 'global', members }];
const { namespace, sharding } = parseFrameworkConfig({
  framework: { namespace: 'com.example', sharding: { 'default-shard': { group: 0, member: 0 }, groups } },
});

export const databases = openDatabases(sharding, postgres());
const repository = new PgRepository({ model: Counter, table: counters, databases });
export const executor = new ActionExecutor({
  namespace,
  databases,
  repositories: [repository],
  actions: [new OpenCounterAction(systemClock), new IncreaseCounterAction(systemClock, repository)],
});

/** Resolves when the databases are ready. */
export async function ready(): Promise<void> {
  await databases.ready();
  await repository.dbs()[0]?.execute(sql`create table if not exists counters (
    id uuid primary key, state text not null, version bigint not null,
    created_date timestamptz not null, updated_date timestamptz not null, value integer not null)`);
}

const statuses: Partial<Record<ErrorCode, number>> = {
  'entity-not-found': 404,
  'invalid-id': 400,
  'invalid-params': 400,
};

/** What a client is told about an error: its code, and the HTTP status for it. */
export function problemOf(error: unknown): { readonly status: number; readonly code: string } {
  const known = FrameworkError.find(error);
  if (known === undefined) return { status: 500, code: 'internal' };
  return { status: statuses[known.code] ?? (known.retryable ? 503 : 500), code: known.code };
}

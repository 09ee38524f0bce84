import {
  type SchemaState,
  type ShardRecord,
  readShards,
  schemaState,
} from '@framework/drizzle-adapter/operation';
import { type DatabaseRole, frameworkTables } from '@framework/postgres-admin';
import type pg from 'pg';

/** What decides about the look at a log. */
export interface LogOptions {
  /** What the processes of the role in the configuration do. */
  readonly roles: readonly DatabaseRole[];
  readonly migrationsFolder: string | undefined;
}

/** What the log of a database says. */
export interface LogFacts {
  readonly schema: SchemaState;
  readonly shards: ShardRecord | undefined;
  /** Missing privileges, such as `insert on eventlog.events`. */
  readonly missingPrivileges: readonly string[];
  /** The partitions of this month and the next that are missing, by name. */
  readonly missingPartitions: readonly string[];
  readonly hasDefaultRows: boolean;
}

/** What the log says to a role, as far as that may ask. */
export async function logOf(client: pg.Client, { roles, migrationsFolder }: LogOptions): Promise<LogFacts> {
  const missingPrivileges = await missingIn(client, roles);
  if (missingPrivileges === undefined) {
    const schema = await schemaState(client, migrationsFolder);
    return { schema, shards: undefined, missingPrivileges: [], missingPartitions: [], hasDefaultRows: false };
  }
  const may = (text: string): boolean => !missingPrivileges.includes(text);
  if (!may('usage on schema eventlog')) {
    const schema = { pending: [], unknown: [], edited: [] };
    return { schema, shards: undefined, missingPrivileges, missingPartitions: [], hasDefaultRows: false };
  }
  const { rows } = await client.query<TablesRow>(tablesText);
  const [{ missing, hasDefaultRows, hasShards } = { missing: [], hasDefaultRows: false, hasShards: false }] =
    rows;
  return {
    schema: may('select on eventlog.migrations')
      ? await schemaState(client, migrationsFolder)
      : { pending: [], unknown: [], edited: [] },
    shards: hasShards && may('select on eventlog.shards') ? await readShards(client) : undefined,
    missingPrivileges,
    missingPartitions: missing,
    hasDefaultRows,
  };
}

interface TablesRow {
  readonly missing: readonly string[];
  readonly hasDefaultRows: boolean;
  /** Whether the database has the table that records its shards. */
  readonly hasShards: boolean;
}

/** A row needs no privilege to be noticed, because nobody but the owner may read a partition by its own name. */
const tablesText = `
  select array(
      select 'events_' || to_char(month, 'YYYY_MM')
      from (values (now() at time zone 'UTC'), (date_trunc('month', now() at time zone 'UTC') + interval '1 month')) as needed (month)
      where to_regclass('eventlog.events_' || to_char(month, 'YYYY_MM')) is null
    ) as missing,
    coalesce(pg_relation_size(to_regclass('eventlog.events_default')) > 0, false) as "hasDefaultRows",
    to_regclass('eventlog.shards') is not null as "hasShards"`;

/** What the role may not do and some of its processes need; `undefined` while the framework's tables do not exist. */
async function missingIn(
  client: pg.Client,
  roles: readonly DatabaseRole[],
): Promise<readonly string[] | undefined> {
  const { rows: found } = await client.query<{ exists: boolean; usable: boolean }>(
    `select true as exists, has_schema_privilege(oid, 'usage') as usable from pg_namespace where nspname = 'eventlog'`,
  );
  const [schema] = found;
  if (schema === undefined) return undefined;
  if (!schema.usable) return ['usage on schema eventlog'];
  const needed = Object.entries(frameworkTables).flatMap(([table, given]) =>
    [...new Set(roles.flatMap((role) => given[role] ?? []))].map((privilege) => ({ table, privilege })),
  );
  const { rows } = await client.query<{ text: string }>(
    `select needed.privilege || ' on eventlog.' || needed.name as text
     from unnest($1::text[], $2::text[]) as needed (name, privilege) join pg_class c on c.relname = needed.name
     join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'eventlog'
     where not has_table_privilege(c.oid, needed.privilege)`,
    [needed.map(({ table }) => table), needed.map(({ privilege }) => privilege)],
  );
  return rows.map(({ text }) => text);
}

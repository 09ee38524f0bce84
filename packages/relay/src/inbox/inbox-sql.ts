import { ConfigurationError } from '@framework/core';
import { type OptionNames, refuseUnknownOptions } from '@framework/core/adapter';

/** A kind of database: PostgreSQL, MySQL or MariaDB, SQLite. */
export type InboxDialect = 'postgresql' | 'mysql' | 'sqlite';

/** The statements of an inbox in one kind of database; their parameters are the consumer, and an id or a time. */
export interface InboxSql {
  /** The statements that create the table, for a migration. */
  readonly table: (table: string) => readonly string[];
  /** The statements that create the table unless it exists, also in two processes at the same time. */
  readonly createTable: (table: string) => readonly string[];
  /** Inserts a row, or waits for the transaction that has inserted the same one and then changes nothing. */
  readonly accept: (table: string) => string;
  /** Deletes at most {@link removedMax} rows. */
  readonly remove: (table: string) => string;
  /** A time as a parameter. */
  readonly time: (date: Date) => string;
}

/** How many rows one statement removes at most. */
export const removedMax = 10_000;

const postgresql: InboxSql = {
  table: (table) => [
    `create table if not exists ${table} (
  consumer text not null,
  event_id text not null,
  accepted_date timestamptz not null default now(),
  primary key (consumer, event_id)
)`,
    `create index if not exists ${table.split('.').at(-1)}_accepted_date on ${table} (consumer, accepted_date)`,
  ],
  // A role without the right to create tables can use one that exists. Without the lock, the second of two processes could fail.
  createTable: (table) => [
    `do $$
begin
  if to_regclass('${table}') is null then
    perform pg_advisory_xact_lock(hashtext('${table}'));
    ${postgresql.table(table).join(';\n')};
  end if;
end $$`,
  ],
  accept: (table) => `insert into ${table} (consumer, event_id) values ($1, $2) on conflict do nothing`,
  remove: (table) =>
    `delete from ${table} where (consumer, event_id) in (
  select consumer, event_id from ${table}
  where consumer = $1 and accepted_date < $2::timestamptz
  limit ${removedMax} for update skip locked
)`,
  time: (date) => date.toISOString(),
};

const mysql: InboxSql = {
  // As bytes, because a collation may take different ids for the same.
  table: (table) => [
    `create table if not exists ${table} (
  consumer varbinary(255) not null,
  event_id varbinary(255) not null,
  accepted_date datetime(3) not null default (utc_timestamp(3)),
  repeat_count int unsigned not null default 0,
  primary key (consumer, event_id),
  index (consumer, accepted_date)
) engine = InnoDB`,
  ],
  createTable: (table) => mysql.table(table),
  // "insert ignore" would also ignore that a foreign key or a partition refuses the row. A repeat counts as two rows.
  accept: (table) =>
    `insert into ${table} (consumer, event_id) values (?, ?) on duplicate key update repeat_count = repeat_count + 1`,
  remove: (table) => `delete from ${table} where consumer = ? and accepted_date < ? limit ${removedMax}`,
  time: (date) => date.toISOString().replace('T', ' ').replace('Z', ''),
};

const sqlite: InboxSql = {
  table: (table) => [
    `create table if not exists ${table} (
  consumer text not null,
  event_id text not null,
  accepted_date text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  primary key (consumer, event_id)
) without rowid`,
  ],
  createTable: (table) => sqlite.table(table),
  accept: (table) => `insert into ${table} (consumer, event_id) values (?, ?) on conflict do nothing`,
  remove: (table) =>
    `delete from ${table} where (consumer, event_id) in (
  select consumer, event_id from ${table} where consumer = ? and accepted_date < ? limit ${removedMax}
)`,
  time: (date) => date.toISOString(),
};

/** The statements by kind of database. */
const dialects: Readonly<Record<InboxDialect, InboxSql>> = { postgresql, mysql, sqlite };

/** Where an inbox remembers events. */
export interface InboxTable {
  /** The name of the table, with or without a schema; in PostgreSQL, each has up to 62 characters. Default `inbox`. */
  readonly table?: string;
  /** The kind of database. Default `'postgresql'`. */
  readonly dialect?: InboxDialect;
}

const tableOptions: OptionNames<InboxTable> = { table: true, dialect: true };
/** PostgreSQL truncates names to 63 characters without an error; the index's name is longer than the table's. */
const postgresqlCharactersMax = 62;
const identifier = /^[a-z_]\w*(\.[a-z_]\w*)?$/i;

/**
 * The statements that create the table of an inbox, for a service that has its own migrations.
 *
 * @throws ConfigurationError `invalid-configuration` when an option is unknown or cannot be used
 */
export function inboxTable(options: InboxTable = {}): readonly string[] {
  refuseUnknownOptions('inbox.', tableOptions, options);
  const { table, sql } = tableOf(options);
  return sql.table(table);
}

/**
 * The name of the table, and the statements for it.
 *
 * @throws ConfigurationError `invalid-configuration` when the name or the dialect cannot be used
 */
export function tableOf({ table = 'inbox', dialect = 'postgresql' }: InboxTable): {
  readonly table: string;
  readonly sql: InboxSql;
} {
  if (!identifier.test(table)) {
    const message = 'must be a name of letters, digits and underscores, such as billing.inbox';
    throw new ConfigurationError([{ path: 'inbox.table', message }]);
  }
  if (dialect === 'postgresql' && table.split('.').some(({ length }) => length > postgresqlCharactersMax)) {
    const message = `must have up to ${postgresqlCharactersMax} characters, and as many in its schema`;
    throw new ConfigurationError([{ path: 'inbox.table', message }]);
  }
  if (!Object.hasOwn(dialects, dialect)) {
    const message = `must be one of ${Object.keys(dialects).join(', ')}`;
    throw new ConfigurationError([{ path: 'inbox.dialect', message }]);
  }
  return { table, sql: dialects[dialect] };
}

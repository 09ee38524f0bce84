import { ConfigurationError } from '@framework/core';
import { type OptionNames, type ShardingConfig, refuseUnknownOptions } from '@framework/core/adapter';
import { inShortTransaction, inWritableDatabase } from '@framework/drizzle-adapter/operation';
import pg from 'pg';

import {
  type DatabaseRole,
  type TablePrivilege,
  type RoleObject,
  databaseRoles,
  ownNameOf,
  wantedOn,
} from './role-privileges.js';
import { primaryDatabases } from './shard-ownership-change.js';

const { escapeIdentifier, escapeLiteral } = pg;

/** How the roles are named, and what the application does with its own tables. */
export interface RoleOptions {
  /**
   * The beginning of the roles' names, such as `wallet` for `wallet_migrator`, `wallet_application`, `wallet_delivery`,
   * `wallet_relay` and `wallet_operator`. At most 40 lower-case letters, digits and `_`. Default `framework`.
   */
  readonly prefix?: string;
  /**
   * What the application may do with its tables, by their names; those outside of the schema `public` with their schema.
   * Default for other tables: select, insert and update; for views: select; for partitions, which are used through their tables: nothing.
   */
  readonly tables?: Readonly<Record<string, readonly TablePrivilege[]>>;
}

/** What one database lacks until its roles have their privileges. */
export interface RoleStatements {
  /** The database's path in the configuration. */
  readonly database: string;
  /** The statements in SQL, in order, without semicolons at their ends; empty if the roles are as they should be. */
  readonly statements: readonly string[];
}

const optionNames: OptionNames<RoleOptions> = { prefix: true, tables: true };
const prefixDefault = 'framework';

/**
 * The statements that give the roles their privileges in the database of each shard, according to the tables that it has now: those
 * of the framework, and those with the same owner, which are the application's. Changes nothing.
 *
 * The roles cannot log in: users who can are granted membership. The statements contain no passwords. In a database that is
 * not migrated yet, they create the roles and let the migrator migrate it; call it again after each migration.
 *
 * @throws ConfigurationError `invalid-configuration` when an option is unknown or invalid
 * @throws Error naming the database, when it cannot be reached or has no table of a given name
 */
export function roleStatements(
  sharding: ShardingConfig,
  options: RoleOptions = {},
): Promise<readonly RoleStatements[]> {
  return onEachDatabase(sharding, options, (_client, missing) => missing());
}

/**
 * Executes what {@link roleStatements} returns, in one transaction per database. Calling it again changes nothing.
 *
 * The role of the configuration must be allowed to create roles and own the database the first time; later, it is enough that
 * it owns the tables.
 *
 * @returns the statements that were executed
 * @throws ConfigurationError `invalid-configuration` when an option is unknown or invalid
 * @throws Error naming the database that refuses; the databases before it have been changed
 */
export function grantRoles(
  sharding: ShardingConfig,
  options: RoleOptions = {},
): Promise<readonly RoleStatements[]> {
  return onEachDatabase(sharding, options, async (client, missing) => {
    const statements = await missing();
    for (const statement of statements) await client.query(statement);
    // A role that may not grant something gets a warning from the server, and no error.
    const refused = await missing();
    if (refused.length === 0) return statements;
    throw new Error(
      `this role may not execute: ${refused.join('; ')}. Nothing was changed: let the owner do it`,
    );
  });
}

/** Returns the statements for a database, given a function that finds out which are missing now. */
type Work = (client: pg.Client, missing: () => Promise<readonly string[]>) => Promise<readonly string[]>;

async function onEachDatabase(
  sharding: ShardingConfig,
  options: RoleOptions,
  work: Work,
): Promise<readonly RoleStatements[]> {
  refuseUnknownOptions('roles.', optionNames, options);
  const { prefix = prefixDefault } = options;
  if (!/^[a-z_][a-z0-9_]{0,39}$/.test(prefix)) {
    const message = 'is not a beginning of names: use up to 40 lower-case letters, digits and _';
    throw new ConfigurationError([{ path: 'roles.prefix', message }]);
  }
  const results: RoleStatements[] = [];
  for (const { config } of primaryDatabases(sharding)) {
    const statements = await inWritableDatabase(config, 'framework roles', (client) =>
      inShortTransaction(client, async () => {
        // Names with their schema everywhere, and no two changes of the same privileges at once.
        await client.query(`set local search_path = pg_catalog;
          select pg_advisory_xact_lock(hashtextextended('eventlog.roles', 0))`);
        return work(client, () => missingIn(client, (role) => `${prefix}_${role}`, options));
      }),
    );
    results.push({ database: config.path, statements });
  }
  return results;
}

/** The objects of a database on which roles have privileges, with the privileges that they have now. */
const objectsText = `
  with log as (
    select c.relowner as owner from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'eventlog' and c.relname = 'events'
  ), relations as (
    select c.*, n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
      and (n.nspname = 'eventlog' or n.nspname = 'drizzle' and c.relname = '__drizzle_migrations'
        or c.relowner = (select owner from log) and n.nspname <> 'drizzle' and n.nspname !~ '^(pg_|information_schema$)')
      -- The tables of extensions, and the sequences of identity columns.
      and not exists (
        select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
          and (d.deptype = 'e' or d.deptype = 'i' and c.relkind = 'S'))
  ), objects (kind, schema, name, sql, owner, acl, column_acl) as (
    select 'database', null, d.datname, format('%I', d.datname), d.datdba, coalesce(d.datacl, acldefault('d', d.datdba)), null::aclitem[]
    from pg_database d where d.datname = current_database()
    union all
    select 'schema', n.nspname, n.nspname, format('%I', n.nspname), n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner)), null
    from pg_namespace n where n.nspname = 'public' or n.nspname in (select r.nspname from relations r)
    union all
    select case when r.relispartition then 'partition' when r.relkind = 'S' then 'sequence' when r.relkind in ('v', 'm') then 'view'
      else 'table' end, r.nspname, r.relname, format('%I.%I', r.nspname, r.relname), r.relowner,
      coalesce(r.relacl, acldefault(case r.relkind when 'S' then 's' else 'r' end::"char", r.relowner)),
      (select array_agg(item) from pg_attribute a, unnest(a.attacl) item where a.attrelid = r.oid)
    from relations r
    union all
    select 'function', n.nspname, substring(p.oid::regprocedure::text from '[.](.*)'), p.oid::regprocedure::text, p.proowner,
      coalesce(p.proacl, acldefault('f', p.proowner)), null
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'eventlog'
  )
  select o.kind, o.schema, o.name, o.sql, coalesce((
      select jsonb_agg(distinct jsonb_build_object('grantee', coalesce(r.rolname, ''), 'privilege', lower(a.privilege_type),
        'isOfColumn', a.is_of_column, 'isGrantable', a.is_grantable))
      from (select *, false as is_of_column from aclexplode(o.acl) union all select *, true from aclexplode(o.column_acl)) a
      left join pg_roles r on r.oid = a.grantee
      where a.grantee <> o.owner and (a.grantee = 0 or r.rolname = any($1))), '[]') as held
  from objects o order by o.kind, o.sql`;

/** A privilege that is granted on an object now. */
interface HeldPrivilege {
  /** The name of the role; `''` for `public`. */
  readonly grantee: string;
  readonly privilege: string;
  /** Whether it is for one column only. Revoking it for the table takes away those for columns. */
  readonly isOfColumn: boolean;
  /** Whether the role may pass it on. */
  readonly isGrantable: boolean;
}

interface FoundObject extends RoleObject {
  readonly held: readonly HeldPrivilege[];
}

/** The statements that a database lacks, in order: missing roles, missing privileges, and the revocation of all others. */
async function missingIn(
  client: pg.Client,
  nameOf: (role: DatabaseRole) => string,
  options: RoleOptions,
): Promise<readonly string[]> {
  const names = databaseRoles.map(nameOf);
  const { rows: known } = await client.query<{ rolname: string }>(
    'select rolname from pg_roles where rolname = any($1)',
    [names],
  );
  const existing = new Set(known.map(({ rolname }) => rolname));
  const created = names.filter((name) => !existing.has(name)).map(creation);
  const { rows: objects } = await client.query<FoundObject>(objectsText, [names]);
  refuseUnknownTables(objects, options);
  const grants = new Changes('grant', 'to');
  const revokes = new Changes('revoke', 'from');
  const unshares = new Changes('revoke grant option for', 'from');
  for (const object of objects) {
    const wanted = wantedOn(object, options.tables ?? {});
    if (wanted === undefined) continue;
    for (const role of databaseRoles) {
      const [name, due] = [nameOf(role), wanted[role] ?? []];
      const held = object.held.filter(({ grantee }) => grantee === name);
      const whole = namesOf(held.filter(({ isOfColumn }) => !isOfColumn));
      const shared = namesOf(held.filter(({ isGrantable }) => isGrantable));
      grants.add(object, without(due, whole), escapeIdentifier(name));
      revokes.add(object, without(namesOf(held), due), escapeIdentifier(name));
      unshares.add(
        object,
        shared.filter((each) => due.includes(each)),
        escapeIdentifier(name),
      );
    }
    revokes.add(object, refusedToAll(object), 'public');
  }
  return [...created, ...grants.statements, ...revokes.statements, ...unshares.statements];
}

/** Two databases of one server may be prepared at the same time, and both print the roles of the server. */
function creation(name: string): string {
  const statement = `create role ${escapeIdentifier(name)} nologin`;
  return `do ${escapeLiteral(`begin ${statement}; exception when duplicate_object or unique_violation then null; end`)}`;
}

/** Before PostgreSQL 15, every role may create tables in the schema `public`. */
function refusedToAll({ kind, held }: FoundObject): readonly string[] {
  const isOpen = held.some(({ grantee, privilege }) => grantee === '' && privilege === 'create');
  return kind === 'schema' && isOpen ? ['create'] : [];
}

/** Each privilege once: it may be held for several columns, or have been granted by several roles. */
function namesOf(held: readonly HeldPrivilege[]): readonly string[] {
  return [...new Set(held.map(({ privilege }) => privilege))];
}

function without(some: readonly string[], others: readonly string[]): readonly string[] {
  return some.filter((each) => !others.includes(each));
}

/** @throws Error when a migrated database has no table for an option, whose name may be misspelt */
function refuseUnknownTables(objects: readonly RoleObject[], { tables = {} }: RoleOptions): void {
  if (!objects.some(({ schema }) => schema === 'eventlog')) return;
  const known = new Set(objects.flatMap((object) => ownNameOf(object) ?? []));
  const unknown = Object.keys(tables).filter((name) => !known.has(name));
  if (unknown.length === 0) return;
  throw new Error(
    `there is no table ${unknown.join(', ')} with the owner of eventlog.events: apply the missing migrations, or correct the name`,
  );
}

/** Statements of one kind, each for all objects on which a role gets or loses the same privileges. */
class Changes {
  readonly #verb: string;
  readonly #preposition: string;
  /** The names of the objects, by the beginning and the end of their statement. */
  readonly #names = new Map<string, Map<string, string[]>>();

  constructor(verb: string, preposition: string) {
    this.#verb = verb;
    this.#preposition = preposition;
  }

  add({ kind, sql }: RoleObject, privileges: readonly string[], role: string): void {
    if (privileges.length === 0) return;
    const ofTable = kind === 'view' || kind === 'partition';
    const start = `${this.#verb} ${privileges.join(', ')} on ${ofTable ? 'table' : kind}`;
    const ends = this.#names.get(start) ?? new Map<string, string[]>();
    this.#names.set(start, ends);
    const end = `${this.#preposition} ${role}`;
    ends.set(end, [...(ends.get(end) ?? []), sql]);
  }

  get statements(): readonly string[] {
    return [...this.#names].flatMap(([start, ends]) =>
      [...ends].map(([end, names]) => `${start} ${names.join(', ')} ${end}`),
    );
  }
}

import { openDatabases } from '@framework/core';
import { postgres } from '@framework/drizzle-adapter';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { logicalReplication } from '@framework/logical-replication';
import { TestPostgres } from '@framework/testing/postgres';
import { readFileSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';

import { grantRoles, roleStatements } from '../src/index.js';
import {
  frameworkFunctions,
  frameworkSequences,
  frameworkTables,
  functionsForAll,
} from '../src/role-privileges.js';
import { emptyDatabase } from '../../drizzle-adapter/test/fixtures/empty-database.js';
import { migrationsFolder } from '../../drizzle-adapter/test/fixtures/migrations-folder.js';
import { query } from '../../drizzle-adapter/test/fixtures/query.js';
import { shardingConfig } from '../../drizzle-adapter/test/fixtures/sharding-config.js';
import { openFeeds } from '../../logical-replication/test/open-feeds.js';
import { RoleLogins, type RoleName } from './fixtures/role-logins.js';

describe('a role', () => {
  const refused: readonly (readonly [RoleName, readonly string[]])[] = [
    [
      'application',
      [
        'update eventlog.events set payload = null',
        'delete from eventlog.events',
        'truncate eventlog.events',
        'select from eventlog.events_default',
        'insert into eventlog.events_default select * from eventlog.events',
        'drop table accounts',
        'delete from accounts',
        'truncate accounts',
        'alter table accounts add column more text',
        'create index on accounts (note)',
        'create trigger spy after insert on accounts execute function eventlog.raise_key_taken()',
        'create table public.mine ()',
        'create table eventlog.mine ()',
        'create schema mine',
        'create temporary table mine ()',
        `select eventlog.drop_partition('events_default')`,
        'select eventlog.trim_default_partition(now(), 1)',
        'select eventlog.create_partitions(1)',
        `update eventlog.cursors set epoch = 9`,
        'update eventlog.leases set token = gen_random_uuid()',
        'delete from eventlog.blocked_models',
        'update eventlog.shards set released_date = now()',
        'insert into eventlog.migrations (hash) values (0)',
        'insert into drizzle.__drizzle_migrations (hash) values (0)',
      ],
    ],
    [
      'delivery',
      [
        'select from public.accounts',
        'select from eventlog.idempotency_keys',
        `insert into eventlog.events select * from eventlog.events`,
        'update eventlog.events set payload = null',
        'delete from eventlog.events',
        'drop table eventlog.events_default',
        'update eventlog.epochs set epoch = 9',
        'update eventlog.shards set released_date = now()',
        `select setval('eventlog.events_position_seq', 1)`,
        'create table eventlog.mine ()',
      ],
    ],
    [
      'relay',
      [
        'select from public.accounts',
        'insert into public.accounts select * from public.accounts',
        'select from eventlog.idempotency_keys',
        'update eventlog.events set payload = null',
        'delete from eventlog.events',
        `select eventlog.drop_partition('events_default')`,
        'select eventlog.trim_default_partition(now(), 1)',
        'update eventlog.handlers set paused = true',
        'delete from eventlog.handlers',
        'create table eventlog.mine ()',
      ],
    ],
    [
      'operator',
      [
        'update accounts set note = null',
        'delete from accounts',
        'insert into eventlog.events select * from eventlog.events',
        'delete from eventlog.blocked_models',
        'update eventlog.handlers set paused = true',
        `select eventlog.drop_partition('events_default')`,
        'select eventlog.trim_default_partition(now(), 1)',
        'create table public.mine ()',
      ],
    ],
  ];

  test.each(refused)('of kind %s is refused everything that is not for it', async (role, statements) => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    const url = logins.urlAs(role);
    const accepted: string[] = [];
    for (const statement of statements) {
      const code = await query(url, statement).then(
        () => 'accepted',
        (error: unknown) => (error as { readonly code?: string }).code,
      );
      if (code !== '42501') accepted.push(`${statement}: ${code}`);
    }
    expect(accepted).toEqual([]);
  });
});

test('a relay leaves dropping old partitions to others, and reports no error', async () => {
  const logins = await RoleLogins.migrated(await emptyDatabase());
  await query(
    logins.urlAs('migrator'),
    `create table eventlog.events_2020_01 partition of eventlog.events for values from ('2020-01-01Z') to ('2020-02-01Z')`,
  );
  const dropAs = async (role: RoleName): Promise<unknown> => {
    const databases = openDatabases(
      logins.shardingAs(role),
      postgres({ migrate: 'check', migrationsFolder }),
    );
    onTestFinished(() => databases.close());
    await databases.ready();
    return databases.deliveries()[0]?.store.partitions.drop(1);
  };
  expect(await dropAs('relay')).toEqual([]);
  expect(await dropAs('delivery')).toEqual(['events_2020_01']);
});

test('a relay may stream the log once the migrator has published it and its user may replicate', async () => {
  const server = await EmbeddedPostgres.startTemporary({ settings: { fsync: 'off', wal_level: 'logical' } });
  onTestFinished(() => server.stop());
  const database = await new TestPostgres(server.url('postgres'), async () => undefined).createDatabase();
  const logins = await RoleLogins.migrated(database);
  const databases = openDatabases(
    logins.shardingAs('relay'),
    postgres({ migrate: 'check', migrationsFolder }),
  );
  onTestFinished(() => databases.close());
  await databases.ready();
  const source = logicalReplication();
  openFeeds(databases, source);
  const reasonIs = (reason: RegExp): Promise<void> =>
    expect
      .poll(() => source.states)
      .toMatchObject([{ kind: 'by-cursor', reason: expect.stringMatching(reason) as string }]);
  await reasonIs(/give the role the attribute REPLICATION/);
  await query(database.url, `alter role ${logins.prefix}_relay_user replication`);
  await reasonIs(/refuses to create the publication framework_events .*: give the role/);
  const page = readFileSync(new URL('../../../docs/operations/database-roles.md', import.meta.url), 'utf8');
  const [publication = ''] = /^create publication .*;$/m.exec(page) ?? [];
  await query(logins.urlAs('migrator'), publication);
  await expect.poll(() => source.states).toMatchObject([{ kind: 'streaming' }]);
});

/** Grants a privilege on the log to everybody, which only leads to a warning if the role may not, and fails unless they have it. */
function passedOn(privilege: string, isHeld: string): string {
  return `do $$ begin
    grant ${privilege} on eventlog.events to public;
    if not ${isHeld} then raise insufficient_privilege; end if;
  end $$`;
}

describe('the statements for roles', () => {
  test('prepare an empty database, create roles without login, and contain no password', async () => {
    const { url } = await emptyDatabase();
    const sharding = shardingConfig([{ group: 0, member: 0, url }]);
    const [first] = await roleStatements(sharding, { prefix: 'never_made' });
    expect(first?.database).toBe('framework.sharding.groups[0].members[0].configs.primary-config');
    const text = first?.statements.join(';\n') ?? '';
    for (const role of ['migrator', 'application', 'delivery', 'relay', 'operator'])
      expect(text).toContain(`create role "never_made_${role}" nologin`);
    expect(text).toMatch(/grant connect, create on database \w+ to "never_made_migrator"/);
    expect(text).not.toMatch(/password|eventlog/);
    expect(await query(url, `select from pg_roles where rolname like 'never_made%'`)).toEqual([]);
  });

  test('can be executed by an owner of the database who may create roles', async () => {
    const { url, database } = await emptyDatabase();
    const owner = `owner_of_${database}`;
    const prefix = database.slice(0, 30);
    onTestFinished(async () => {
      const names = ['migrator', 'application', 'delivery', 'relay', 'operator'].map(
        (role) => `${prefix}_${role}`,
      );
      await query(url, `drop owned by ${[owner, ...names].join(', ')} cascade`);
      await query(
        url,
        `alter database ${database} owner to current_user; drop role ${[owner, ...names].join(', ')}`,
      );
    });
    await query(
      url,
      `create role ${owner} login createrole password '${owner}';
       alter database ${database} owner to ${owner}; alter schema public owner to ${owner}`,
    );
    const asOwner = new URL(url);
    asOwner.username = owner;
    asOwner.password = owner;
    const sharding = shardingConfig([{ group: 0, member: 0, url: asOwner.href }]);
    const [granted] = await grantRoles(sharding, { prefix });
    expect(granted?.statements.length).toBeGreaterThan(5);
    expect(await roleStatements(sharding, { prefix })).toMatchObject([{ statements: [] }]);
  });

  test('are empty once they were executed', async () => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    expect(await logins.missing()).toEqual([]);
    expect(await logins.grant({}, 'migrator')).toEqual([]);
  });

  test('grant the tables of a new migration, and take back what was granted beyond the decisions', async () => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    const { prefix } = logins;
    await query(
      logins.urlAs('migrator'),
      `create table notes (id serial primary key, number integer generated always as identity);
       create schema other; create table other.notes (); create view other.titles as select from notes;
       grant delete on eventlog.events to ${prefix}_application; grant delete on accounts to ${prefix}_application`,
    );
    const tables = { 'other.notes': ['select', 'delete'] } as const;
    const statements = await logins.grant({ tables }, 'migrator');
    expect(statements.map((each) => each.replaceAll(`${prefix}_`, ''))).toEqual([
      'grant usage on schema other to "application"',
      'grant usage on schema other to "operator"',
      'grant usage on sequence public.notes_id_seq to "application"',
      'grant select, delete on table other.notes to "application"',
      'grant select on table other.notes, public.notes, other.titles to "operator"',
      'grant select on table other.titles to "application"',
      'grant select, insert, update on table public.notes to "application"',
      'revoke delete on table eventlog.events, public.accounts from "application"',
    ]);
    expect(await logins.missing({ tables })).toEqual([]);
  });

  test.each<readonly [what: string, grants: (role: string) => string, evaded: string]>([
    [
      'on all tables, with the partitions of the log',
      (role) => `grant all on all tables in schema eventlog to ${role}`,
      'delete from eventlog.events_default',
    ],
    [
      'on columns',
      (role) => `grant update (payload) on eventlog.events to ${role}`,
      'update eventlog.events set payload = null',
    ],
    [
      'on columns of partitions',
      (role) => `grant update (payload) on eventlog.events_default to ${role}`,
      'update eventlog.events_default set payload = null',
    ],
    [
      'with the right to pass it on',
      (role) => `grant select on eventlog.events to ${role} with grant option`,
      passedOn('select', `has_table_privilege('public', 'eventlog.events', 'select')`),
    ],
    [
      'with the right to pass on columns',
      (role) => `grant select (payload) on eventlog.events to ${role} with grant option`,
      passedOn('select (payload)', `has_column_privilege('public', 'eventlog.events', 'payload', 'select')`),
    ],
  ])('take back what was granted %s', async (_what, grants, evaded) => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    const asApplication = (): Promise<unknown> =>
      query(logins.urlAs('application'), `begin; ${evaded}; rollback`);
    await query(logins.database.url, grants(`${logins.prefix}_application`));
    await asApplication();
    expect(await logins.grant({}, 'migrator')).not.toEqual([]);
    expect(await logins.missing()).toEqual([]);
    await expect(asApplication()).rejects.toMatchObject({ code: '42501' });
  });

  test('leave a partition of the application to whom it names', async () => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    const role = `${logins.prefix}_application`;
    await query(
      logins.urlAs('migrator'),
      `create table visits (at timestamptz) partition by range (at);
       create table visits_first partition of visits default; grant select, delete on visits_first to ${role}`,
    );
    const [, ...revokes] = (await logins.grant({ tables: { visits_first: ['select'] } }, 'migrator')).filter(
      (each) => !each.endsWith('_operator"'),
    );
    expect(revokes).toEqual([`revoke delete on table public.visits_first from "${role}"`]);
    expect(await logins.grant({}, 'migrator')).toEqual([
      `revoke select on table public.visits_first from "${role}"`,
    ]);
  });

  test('leave the tables of others alone', async () => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    await query(logins.database.url, 'create table strangers ()');
    expect(await logins.missing()).toEqual([]);
  });

  test('take from everybody the right to create tables, as in PostgreSQL 14', async () => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    await query(logins.database.url, 'grant create on schema public to public');
    expect(await logins.grant()).toEqual(['revoke create on schema public from public']);
  });

  test('change nothing when the role may not execute one of them', async () => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    const { url } = logins.database;
    await query(url, `create table theirs (); alter table theirs owner to ${logins.prefix}_migrator`);
    await query(url, `revoke connect on database ${logins.database.database} from ${logins.prefix}_relay`);
    await expect(logins.grant({}, 'migrator')).rejects.toThrow(
      /this role may not execute: grant connect on database/,
    );
    expect(await logins.missing()).toHaveLength(3);
  });

  test.each<readonly [title: string, options: object, expected: object]>([
    ['upper case in the prefix', { prefix: 'Wallet' }, { code: 'invalid-configuration' }],
    ['a long prefix', { prefix: 'a'.repeat(41) }, { code: 'invalid-configuration' }],
    ['an unknown option', { tabels: {} }, { code: 'invalid-configuration' }],
    [
      'an unknown table',
      { tables: { acounts: [] } },
      { message: expect.stringMatching(/there is no table acounts/) as string },
    ],
  ])('are not made with %s', async (_title, options, expected) => {
    const logins = await RoleLogins.migrated(await emptyDatabase());
    await expect(grantRoles(logins.shardingAs(), options)).rejects.toMatchObject(expected);
  });
});

test('every table, sequence and function of the framework has its decision about roles', async () => {
  const logins = await RoleLogins.migrated(await emptyDatabase());
  const rows = await query<{ readonly kind: string; readonly name: string }>(
    logins.database.url,
    `select case relkind when 'S' then 'sequence' else 'table' end as kind, relname as name from pg_class
     where relnamespace = 'eventlog'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S') and not relispartition
     union all
     select 'function', substring(oid::regprocedure::text from '[.](.*)') from pg_proc
     where pronamespace = 'eventlog'::regnamespace`,
  );
  const found = (kind: string): readonly string[] =>
    rows.flatMap((row) => (row.kind === kind ? [row.name] : [])).toSorted();
  expect(found('table')).toEqual(Object.keys(frameworkTables).toSorted());
  expect(found('sequence')).toEqual(Object.keys(frameworkSequences).toSorted());
  expect(found('function')).toEqual([...Object.keys(frameworkFunctions), ...functionsForAll].toSorted());
});

test('the page about roles lists what each of them may do with each table of the framework', () => {
  const page = readFileSync(new URL('../../../docs/operations/database-roles.md', import.meta.url), 'utf8');
  const rows = [...page.matchAll(/^\| `(\w+)` +\|([^|]*)\|([^|]*)\|([^|]*)\| select +\|$/gm)];
  const listed = rows.map((row) => row.slice(1).map((cell) => cell.trim()));
  const decided = Object.entries(frameworkTables).map(([name, { application, delivery, relay }]) => [
    name,
    ...[application, delivery, relay].map((privileges) => privileges?.join(', ') ?? ''),
  ]);
  expect(listed).toEqual(decided);
});

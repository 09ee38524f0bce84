import { parseFrameworkConfig } from '@framework/core';
import { migrateShards } from '@framework/drizzle-adapter';
import { grantRoles } from '@framework/postgres-admin';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import pg from 'pg';

import type { ServiceRole } from '@framework/service';

import { rolesOf } from '../../../packages/service/src/service-command.js';
import { walletService } from '../src/wallet-service.js';

const databaseRoles = rolesOf(walletService);

/** Whether the processes of these tests have the least privileges, and not those of the server's owner. */
export const leastPrivileges: boolean = process.env['WALLET_TEST_ROLES'] === 'on';

/** Users who can log in, each with the roles of one kind of process. */
const logins = {
  migrator: ['migrator'],
  http: ['application'],
  worker: ['application', 'delivery'],
  relay: ['relay'],
} as const;

/** As whom a process connects: as the server's owner, or as a user with the roles of its kind. */
export type Login = keyof typeof logins | 'owner';

/** The login of a process with this `WALLET_ROLE`. */
export function loginOf(role: ServiceRole): Login {
  return role === 'all' ? 'worker' : role;
}

/** The user and the password of a login, as in a configuration. */
export function credentialsOf(
  login: Login,
  { user, password }: TestDatabase,
): { readonly username: string; readonly password: string } {
  if (login === 'owner') return { username: user, password };
  const name = `wallet_test_${login}`;
  return { username: name, password: name };
}

/** Two empty databases for the shards, prepared for the logins if the processes of these tests use them. */
export async function createShardDatabases(
  isPrepared: boolean = leastPrivileges,
): Promise<{ readonly global: TestDatabase; readonly mexico: TestDatabase }> {
  const [global, mexico] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  if (isPrepared) await prepareDatabases([global, mexico]);
  return { global, mexico };
}

/**
 * Lets the migrator migrate the databases of the shards (0, 0), (1, 0) and so on, and grants all roles their privileges. Everybody
 * else may not even connect.
 */
export async function prepareDatabases(databases: readonly TestDatabase[]): Promise<void> {
  const shardingAs = (login: Login) => {
    const groups = databases.map((database, group) => {
      const { host, port, database: name } = database;
      const url = `jdbc:postgresql://${host}:${port}/${name}`;
      const primaryConfig = { 'jdbc-url': url, ...credentialsOf(login, database) };
      return {
        group,
        name: `group-${group}`,
        members: [{ member: 0, name: 'one', configs: { primaryConfig } }],
      };
    });
    const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
    return parseFrameworkConfig({ framework: { namespace: 'com.example.wallet', sharding } }).sharding;
  };
  await grantRoles(shardingAs('owner'), { prefix: databaseRoles.prefix });
  for (const database of databases) {
    await createLogins(database);
    const name = pg.escapeIdentifier(database.database);
    await execute(
      database.url,
      `revoke all on database ${name} from public; revoke all on schema public from public`,
    );
  }
  await migrateShards(shardingAs('migrator'), walletService.migrationsFolder);
  await grantRoles(shardingAs('migrator'), databaseRoles);
}

/** Creates the users on the server, unless another test has. They stay, since they belong to no database. */
async function createLogins({ url }: TestDatabase): Promise<void> {
  const statements = Object.entries(logins).map(([login, roles]) => {
    const groups = roles.map((role) => `${databaseRoles.prefix}_${role}`).join(', ');
    const name = `wallet_test_${login}`;
    const own = login === 'migrator' ? `alter role ${name} set role to ${groups};` : '';
    return `if not exists (select from pg_roles where rolname = '${name}') then
      create role ${name} login password '${name}' in role ${groups}; ${own} end if;`;
  });
  // One database for the lock, because users belong to the whole server.
  const server = new URL(url);
  server.pathname = '/postgres';
  await execute(
    server.href,
    `do $$ begin perform pg_advisory_xact_lock(4711); ${statements.join('\n')} end $$`,
  );
}

async function execute(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}

import { type RetryPolicy, parseFrameworkConfig } from '@framework/core';
import { type TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { pino } from 'pino';

import { type RunningService, startService } from '../src/process/start.js';
import { groupCommit } from './group-commit.js';
import { WalletClient } from './wallet-client.js';

/** Keys of a `primary-config`, in kebab-case. */
type DatabaseSettings = Readonly<Record<string, string | number>>;

/** Differences from two healthy shards with the default settings. */
export interface TestServiceOptions {
  /** Settings of the shard (0, 0), such as `maximum-pool-size`. */
  readonly global?: DatabaseSettings;
  /** The port under which the service reaches the shard (1, 0), such as that of a proxy. Default: that of its database. */
  readonly mexicoPort?: number;
  /** Settings of the shard (1, 0). */
  readonly mexico?: DatabaseSettings;
  /** A port for a third shard, (2, 0), on which no database of the service answers. */
  readonly thirdPort?: number;
  /** A database for a third shard, (2, 0). */
  readonly third?: TestDatabase;
  /** The `migrate` setting of the databases. Default `on-start`. */
  readonly migrate?: string;
  /** The section `delivery`, in kebab-case. */
  readonly delivery?: object;
  /** The section `relay`, in kebab-case. */
  readonly relay?: readonly object[];
  readonly retry?: Partial<RetryPolicy>;
}

/** The databases of the two shards. */
export interface ShardDatabases {
  readonly global: TestDatabase;
  readonly mexico: TestDatabase;
}

/** The wallet service on a free port, with a separate database for each shard. */
export interface TestService extends RunningService, ShardDatabases {
  readonly client: WalletClient;
  /** The lines that the service has logged so far. */
  readonly log: readonly string[];
}

/** Starts the real service for a test file; stop it with {@link stopTestService}. */
export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const [global, mexico] = await Promise.all([createTestDatabase(), createTestDatabase()]);
  return startTestServiceOn({ global, mexico }, options);
}

/** Starts the service on databases of the caller, for example behind a proxy. */
export async function startTestServiceOn(
  databases: ShardDatabases,
  options: TestServiceOptions = {},
): Promise<TestService> {
  const log: string[] = [];
  const logger = pino({ level: 'info' }, { write: (line) => log.push(line) });
  const config = parseFrameworkConfig(configTree(databases, options));
  const { retry } = options;
  const running = await startService({ config, host: '127.0.0.1', port: 0, logger, ...(retry && { retry }) });
  const client = new WalletClient(running.url);
  const { service } = running;
  if (options.thirdPort === undefined) {
    await service.databases.ready();
    await service.delivery.started();
  }
  return { ...running, ...databases, client, log };
}

/** Stops the service and drops its databases. */
export async function stopTestService({ stop, global, mexico }: TestService): Promise<void> {
  await stop();
  await Promise.all([global.drop(), mexico.drop()]);
}

/** The configuration of the two shards as in a file, with group commit if the project has it. */
export function configTree({ global, mexico }: ShardDatabases, options: TestServiceOptions = {}): unknown {
  const groups = [
    group(0, 'global', global, global.port, options.global),
    group(1, 'mexico', mexico, options.mexicoPort ?? mexico.port, options.mexico),
  ];
  if (options.thirdPort !== undefined) groups.push(group(2, 'third', global, options.thirdPort, {}));
  if (options.third !== undefined) groups.push(group(2, 'third', options.third, options.third.port));
  const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
  const { delivery = {}, relay = [], migrate } = options;
  const own = { namespace: 'com.example.wallet', sharding, 'group-commit': groupCommit, delivery, relay };
  return { framework: { ...own, ...(migrate !== undefined && { migrate }) } };
}

function group(
  number: number,
  name: string,
  database: TestDatabase,
  port: number,
  settings: DatabaseSettings = {},
): unknown {
  const primaryConfig = {
    'jdbc-url': `jdbc:postgresql://${database.host}:${port}/${database.database}`,
    username: database.user,
    password: database.password,
    ...settings,
  };
  return { group: number, name, members: [{ member: 0, name: `${name}-1`, configs: { primaryConfig } }] };
}

import { type RetryPolicy, parseFrameworkConfig } from '@framework/core';
import type { TestDatabase } from '@framework/testing/postgres';
import { pino } from 'pino';

import { logOptions } from '../../../packages/service/src/log/log-format.js';
import { type Login, createShardDatabases, credentialsOf, leastPrivileges } from './database-logins.js';
import { groupCommit } from './group-commit.js';
import { certificateFiles, overTls, testCertificate } from '../../../packages/http/test/test-tls.js';
import { type RunningWallets, startWallets } from './started-service.js';
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
  /** The `migrate` setting of the databases. Default `on-start`, or `check` if it is not the owner who logs in. */
  readonly migrate?: string;
  /**
   * As whom the service logs in to databases of {@link createShardDatabases}. Default: the server's owner; with
   * `WALLET_TEST_ROLES=on`, the user for processes that answer requests and deliver.
   */
  readonly login?: Login;
  /** The section `delivery`, in kebab-case. */
  readonly delivery?: object;
  /** The section `relay`, in kebab-case. */
  readonly relay?: readonly object[];
  /** `http` leaves delivery out. Default `all`. */
  readonly role?: 'all' | 'http';
  /** The section `security`, in kebab-case. Default: everybody is answered. */
  readonly security?: object;
  /** The section `http`, in kebab-case. */
  readonly http?: object;
  /** Whether actions are committed in groups. Default: as the project says. */
  readonly groupCommit?: boolean;
  /** The section `metrics`, in kebab-case. Default: Prometheus is not served. */
  readonly metrics?: object;
  /** The section `operator`, in kebab-case. Default: nothing listens for operators. */
  readonly operator?: object;
  readonly retry?: Partial<RetryPolicy>;
}

/** The databases of the two shards. */
export interface ShardDatabases {
  readonly global: TestDatabase;
  readonly mexico: TestDatabase;
}

/** The wallet service on a free port, with a separate database for each shard. */
export interface TestService extends RunningWallets, ShardDatabases {
  readonly client: WalletClient;
  /** The lines that the service has logged so far. */
  readonly log: readonly string[];
}

/** Starts the real service for a test file; stop it with {@link stopTestService}. */
export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  return startTestServiceOn(await createShardDatabases(), options);
}

/** Starts the service on databases of the caller, for example behind a proxy. */
export async function startTestServiceOn(
  databases: ShardDatabases,
  options: TestServiceOptions = {},
): Promise<TestService> {
  const log: string[] = [];
  const logger = pino({ ...logOptions, level: 'debug' }, { write: (line) => log.push(line) });
  const certificate = overTls ? await certificateFiles(await testCertificate()) : undefined;
  const http = { ...(certificate && { tls: certificate.section }), ...options.http };
  const config = parseFrameworkConfig(configTree(databases, { ...options, http }));
  const { retry, role = 'all' } = options;
  const address = { host: '127.0.0.1', port: 0 };
  const running = await startWallets({ config, role, ...address, logger, ...(retry && { retry }) });
  const client = new WalletClient(running.url);
  const { service } = running;
  if (options.thirdPort === undefined) {
    await service.databases.ready();
    await service.delivery.started();
  }
  const stop = async (): Promise<void> => {
    await running.stop();
    await certificate?.remove();
  };
  return { ...running, stop, ...databases, client, log };
}

/** Stops the service and drops its databases. */
export async function stopTestService({ stop, global, mexico }: TestService): Promise<void> {
  await stop();
  await Promise.all([global.drop(), mexico.drop()]);
}

/** The configuration of the two shards as in a file, with group commit if the project has it. */
export function configTree({ global, mexico }: ShardDatabases, options: TestServiceOptions = {}): unknown {
  const { login = leastPrivileges ? 'worker' : 'owner' } = options;
  const as = (database: TestDatabase, settings: DatabaseSettings = {}): DatabaseSettings => ({
    ...credentialsOf(login, database),
    ...settings,
  });
  const groups = [
    group(0, 'global', global, global.port, as(global, options.global)),
    group(1, 'mexico', mexico, options.mexicoPort ?? mexico.port, as(mexico, options.mexico)),
  ];
  if (options.thirdPort !== undefined) groups.push(group(2, 'third', global, options.thirdPort, as(global)));
  const { third } = options;
  if (third !== undefined) groups.push(group(2, 'third', third, third.port, as(third)));
  const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
  const { migrate = login === 'owner' ? undefined : 'check' } = options;
  const { delivery = {}, relay = [], security = {}, http = {}, metrics = {}, operator = {} } = options;
  const shared = {
    namespace: 'com.example.wallet',
    sharding,
    'group-commit': options.groupCommit ?? groupCommit,
  };
  const own = { ...shared, delivery, relay, security, http, metrics, operator };
  return { framework: { ...own, ...(migrate !== undefined && { migrate }) } };
}

function group(
  number: number,
  name: string,
  database: TestDatabase,
  port: number,
  settings: DatabaseSettings,
): unknown {
  const primaryConfig = {
    'jdbc-url': `jdbc:postgresql://${database.host}:${port}/${database.database}`,
    ...settings,
  };
  return { group: number, name, members: [{ member: 0, name: `${name}-1`, configs: { primaryConfig } }] };
}

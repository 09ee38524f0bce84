import { type FrameworkConfig, parseFrameworkConfig } from '@framework/core';
import { type ServiceRole, openService } from '@framework/service';
import { Big } from 'big.js';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { WalletService } from '../../src/composition.js';
import { walletService } from '../../src/wallet-service.js';
import { WalletCreateAction } from '../../src/wallet/wallet-create-action.js';
import { WalletDepositMoneyAction } from '../../src/wallet/wallet-deposit-money-action.js';
import type { Wallet } from '../../src/wallet/wallet.js';
import { type Login, createShardDatabases, leastPrivileges, loginOf } from '../database-logins.js';
import { ServiceProcess } from '../service-process.js';
import { type ShardDatabases, configTree } from '../start-test-service.js';
import { anOwner } from '../wallet-client.js';
import { type ProgramName, bundledProgram } from './bundle-program.js';
import { Deliveries } from './deliveries.js';

const principal = { name: 'test' };

/** Few connections per process, because there are many processes. */
const connections = { 'maximum-pool-size': 4 };

/** Short times, so that a killed process is soon replaced, and the end of delivery soon noticed. */
const quickDelivery = { 'lease-ms': 1_500, 'cursor-save-ms': 20 };

/** The programs that are the service. */
type ServiceProgram = Exclude<ProgramName, 'soak'>;

/** The users of the processes, each of which has its own configuration. */
const logins: readonly Login[] = ['owner', 'http', 'worker', 'relay'];
const globalOnly = 'global-only.json';
const noRelay = 'no-relay.json';

/** Processes of the service on two databases of their own. */
export class Fleet {
  readonly databases: ShardDatabases;
  readonly config: FrameworkConfig;
  /** The service in the process of the test: executes actions, but delivers nothing. */
  readonly service: WalletService;
  readonly deliveries: Deliveries;
  readonly #folder: string;
  readonly #files: Readonly<Record<ServiceProgram, string>>;
  readonly #hasLogins: boolean;
  readonly #started: ServiceProcess[] = [];
  #ended = false;

  private constructor(options: {
    readonly databases: ShardDatabases;
    readonly config: FrameworkConfig;
    readonly deliveries: Deliveries;
    readonly folder: string;
    readonly files: Readonly<Record<ServiceProgram, string>>;
    readonly hasLogins: boolean;
  }) {
    this.databases = options.databases;
    this.config = options.config;
    this.deliveries = options.deliveries;
    this.#folder = options.folder;
    this.#files = options.files;
    this.#hasLogins = options.hasLogins;
    this.service = openService(walletService, options.config, { delivers: false });
  }

  /**
   * Creates the databases, and waits until they are migrated; end it with {@link Fleet.end}.
   *
   * @param delivery settings that override those of the `delivery` section
   * @param relay the `relay` section. Default: no relays
   * @param hasLogins whether each process has a user with the privileges of its kind, and not those of the server's owner
   */
  static async create(
    delivery: object = {},
    relay: readonly object[] = [],
    hasLogins: boolean = leastPrivileges,
  ): Promise<Fleet> {
    const databases = await createShardDatabases(hasLogins);
    const folder = await mkdtemp(join(tmpdir(), 'wallet-fleet-'));
    const files = {
      main: await bundledProgram('main'),
      recording: await bundledProgram('recording'),
      impatient: await bundledProgram('impatient'),
    };
    const options = { global: connections, mexico: connections };
    const treeAs = (login: Login): unknown =>
      configTree(databases, { ...options, login, relay, delivery: { ...quickDelivery, ...delivery } });
    for (const login of logins) await writeFile(join(folder, `${login}.json`), JSON.stringify(treeAs(login)));
    const tree = treeAs(hasLogins ? 'worker' : 'owner');
    await writeFile(join(folder, globalOnly), JSON.stringify(withoutMexico(tree)));
    await writeFile(join(folder, noRelay), JSON.stringify(withoutRelays(tree)));
    const config = parseFrameworkConfig(tree);
    const deliveries = await Deliveries.in(databases.global);
    const fleet = new Fleet({ databases, config, deliveries, folder, files, hasLogins });
    await fleet.service.databases.ready();
    return fleet;
  }

  /** Whether processes end because the test is over. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Starts a process of the service. */
  start(role: ServiceRole, environment: Readonly<Record<string, string>> = {}): ServiceProcess {
    const WALLET_CONFIG = this.#configOf(loginOf(role));
    return this.#start('main', { WALLET_CONFIG, ...environment, WALLET_ROLE: role });
  }

  /** Starts a process of the service that ends as soon as a call has ignored its signal for two seconds. */
  startImpatient(): ServiceProcess {
    return this.#start('impatient', { WALLET_ROLE: 'all' });
  }

  /** Starts a worker whose configuration lacks the shard (1, 0), as before a rollout or by mistake. */
  startGlobalOnly(): ServiceProcess {
    return this.#start('main', { WALLET_ROLE: 'worker', WALLET_CONFIG: join(this.#folder, globalOnly) });
  }

  /** Starts a worker whose configuration has no relays. */
  startWithoutRelays(): ServiceProcess {
    return this.#start('main', { WALLET_ROLE: 'worker', WALLET_CONFIG: join(this.#folder, noRelay) });
  }

  /** Starts a worker that also has the recording handlers. */
  startRecording(environment: Readonly<Record<string, string>> = {}): ServiceProcess {
    const { url } = this.deliveries;
    return this.#start('recording', { ...environment, WALLET_ROLE: 'worker', RECORDS_URL: url });
  }

  /** Opens an empty wallet, on the shard of its country. */
  openWallet(country: string): Promise<Wallet> {
    const params = { country, ownerId: anOwner, currency: 'EUR', initialBalance: new Big(0) };
    return this.service.executor.execute(principal, WalletCreateAction, params);
  }

  /** Deposits 1 into a wallet. */
  async deposit({ id: walletId }: Pick<Wallet, 'id'>, recipient?: string): Promise<void> {
    const params = { walletId, amount: new Big(1), recipient };
    await this.service.executor.execute(principal, WalletDepositMoneyAction, params);
  }

  /** Kills every process and drops the databases. */
  async end(): Promise<void> {
    this.#ended = true;
    for (const each of this.#started) each.kill('SIGKILL');
    await Promise.all(this.#started.map((each) => each.exitCode()));
    await this.service.delivery.stop();
    await this.service.databases.close();
    const { global, mexico } = this.databases;
    await Promise.all([global.drop(), mexico.drop(), rm(this.#folder, { recursive: true })]);
  }

  #configOf(login: Login): string {
    return join(this.#folder, `${this.#hasLogins ? login : 'owner'}.json`);
  }

  #start(program: ServiceProgram, environment: Readonly<Record<string, string>>): ServiceProcess {
    const settings = { WALLET_CONFIG: this.#configOf('worker'), LOG_LEVEL: 'warn', ...environment };
    const started = new ServiceProcess(settings, [this.#files[program]]);
    this.#started.push(started);
    return started;
  }
}

function withoutRelays(tree: unknown): unknown {
  const { framework } = tree as { readonly framework: object };
  return { framework: { ...framework, relay: [] } };
}

function withoutMexico(tree: unknown): unknown {
  const { framework } = structuredClone(tree) as {
    framework: { sharding: { groups: { readonly name: string }[] } };
  };
  framework.sharding.groups = framework.sharding.groups.filter(({ name }) => name !== 'mexico');
  return { framework };
}

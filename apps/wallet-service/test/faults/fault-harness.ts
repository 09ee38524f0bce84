import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { FaultProxy } from '@framework/testing';
import { TestDatabase, createTestDatabase } from '@framework/testing/postgres';
import { vi } from 'vitest';
import { bundledProgram } from '../delivery/bundle-program.js';
import { leastPrivileges, loginOf, prepareDatabases } from '../database-logins.js';
import { rowsOf } from '../database-session.js';
import { ServiceProcess } from '../service-process.js';
import { type ShardDatabases, type TestServiceOptions, configTree } from '../start-test-service.js';
import { type WalletBody, WalletClient } from '../wallet-client.js';
import { addStandby } from './add-standby.js';
import { expectSettled } from './expect-settled.js';
import { Traffic } from './traffic.js';

const mexicoName = 'mexico';

/**
 * How soon after the end of a fault everything must work by itself, in addition to the time that the checks take without a fault.
 */
const wellWithinMs = 10_000;
/** How soon after the end of a fault every transfer has ended, including those that were waiting for their next attempt. */
const settledWithinMs = 30_000;
/** How many times as long as without a fault the checks may take: they take longer with cold connections. */
const slownessMax = 10;

/** Which shards a process has in its configuration; `exchanged` means both, each with the database of the other. */
export type KnownShards = 'both' | 'global' | 'mexico' | 'exchanged';

/**
 * The wallet service as real processes, with one of its two shards on a separate server, behind a proxy: what a test needs to
 * break one thing, and to see that everything works by itself afterwards.
 *
 * ```ts
 * const harness = await FaultHarness.start();
 * const traffic = await harness.traffic();
 * await harness.proxy.refuse();
 * // … what a client and an operator see meanwhile
 * await harness.proxy.accept();
 * await harness.expectWell();
 * await harness.expectSettled(await traffic.end());
 * ```
 */
export class FaultHarness {
  readonly shards: ShardDatabases;
  /** The proxy between the service and the shard (1, 0). */
  readonly proxy: FaultProxy;
  #server: EmbeddedPostgres;
  readonly #standby: EmbeddedPostgres | undefined;
  readonly #target: { readonly host: string; port: number };
  readonly #folder: string;
  readonly #options: TestServiceOptions;
  readonly #processes: ServiceProcess[] = [];
  #service: ServiceProcess | undefined;
  #client: WalletClient | undefined;
  /** How long the checks take on this machine when everything works. */
  #healthyMs = 0;

  private constructor(parts: {
    readonly shards: ShardDatabases;
    readonly proxy: FaultProxy;
    readonly server: EmbeddedPostgres;
    readonly standby: EmbeddedPostgres | undefined;
    readonly target: { readonly host: string; port: number };
    readonly folder: string;
    readonly options: TestServiceOptions;
  }) {
    this.shards = parts.shards;
    this.proxy = parts.proxy;
    this.#server = parts.server;
    this.#standby = parts.standby;
    this.#target = parts.target;
    this.#folder = parts.folder;
    this.#options = parts.options;
  }

  /**
   * Starts the databases and one process that does everything; end it with {@link FaultHarness.end}.
   *
   * @param options.hasStandby whether the server of the shard (1, 0) has a standby. Default false.
   */
  static async start(
    options: TestServiceOptions & { readonly hasStandby?: boolean } = {},
  ): Promise<FaultHarness> {
    const folder = await mkdtemp(join(tmpdir(), 'wallet-faults-'));
    const [global, first] = await Promise.all([
      createTestDatabase(),
      startServer(folder),
      bundledProgram('main'),
    ]);
    await first.ensureDatabase(mexicoName);
    const { server, standby } =
      options.hasStandby === true
        ? await addStandby(first, serverFolder(folder), () => startServer(folder))
        : { server: first, standby: undefined };
    const target = { host: server.host, port: server.port };
    const proxy = await FaultProxy.to(target);
    // The URL leads through the proxy, whose port stays the same when the server comes back on a different one.
    const mexico = new TestDatabase(server.url('').replace(`:${server.port}`, `:${proxy.port}`), mexicoName);
    const shards = { global, mexico };
    if (leastPrivileges) await prepareDatabases([global, mexico]);
    const harness = new FaultHarness({ shards, proxy, server, standby, target, folder, options });
    await (await harness.startService()).printed('is ready');
    const startedMs = performance.now();
    await harness.#seeThatAllIsWell(settledWithinMs);
    harness.#healthyMs = performance.now() - startedMs;
    return harness;
  }

  /** Sends requests to the service: to the process that answers them. */
  get client(): WalletClient {
    if (this.#client === undefined) throw new Error('the service has not been started');
    return this.#client;
  }

  /** Every line that the processes have logged. */
  get log(): readonly string[] {
    return this.#processes.flatMap(({ stderr }) => stderr.split('\n'));
  }

  /**
   * Starts the process that answers requests and delivers, in place of the previous one, if there was one.
   *
   * @param ownDelivery settings of this process alone, which override those of all processes
   */
  async startService(
    knows: KnownShards = 'both',
    role: 'all' | 'http' = 'all',
    ownDelivery: object = {},
  ): Promise<ServiceProcess> {
    const service = await this.startProcess(role, knows, ownDelivery);
    this.#service = service;
    this.#client = new WalletClient(await service.printed('http://'));
    return service;
  }

  /** Ends the process that answers requests, as a crash does. */
  async killService(): Promise<void> {
    this.#service?.kill('SIGKILL');
    await this.#service?.exitCode();
  }

  /** Ends the process that answers requests, as operators do, and returns its exit code. */
  async stopService(): Promise<unknown> {
    this.#service?.kill('SIGTERM');
    return this.#service?.exitCode();
  }

  /** Starts a further process. */
  async startProcess(
    role: 'all' | 'http' | 'worker',
    knows: KnownShards = 'both',
    ownDelivery: object = {},
  ): Promise<ServiceProcess> {
    // Cursors that pass only unwanted events are saved often, so that the end of delivery becomes visible.
    const delivery = { 'cursor-save-ms': 50, ...this.#options.delivery, ...ownDelivery };
    const tree = configTree(this.shards, {
      mexicoPort: this.proxy.port,
      login: leastPrivileges ? loginOf(role) : 'owner',
      ...this.#options,
      delivery,
    });
    const file = join(this.#folder, `wallet-${this.#processes.length}.json`);
    await writeFile(file, JSON.stringify(withShards(tree, knows)));
    const environment = { WALLET_CONFIG: file, WALLET_ROLE: role, LOG_LEVEL: 'warn' };
    const started = new ServiceProcess(environment, [await bundledProgram('main')]);
    this.#processes.push(started);
    return started;
  }

  /** Runs a statement on the server of the shard (1, 0), bypassing the proxy; in its database by default. */
  async onServer(text: string, database: string = mexicoName): Promise<void> {
    await rowsOf(new TestDatabase(this.#server.url(''), database), text);
  }

  /** Ends the server of the shard (1, 0), as a crash does. */
  async killServer(): Promise<void> {
    const file = join(this.#server.dataDirectory, 'postmaster.pid');
    process.kill(Number((await readFile(file, 'utf8')).split('\n')[0]), 'SIGKILL');
    await this.#server.exited;
  }

  /** Starts the server of the shard (1, 0) again. */
  async restartServer(): Promise<void> {
    this.#server = await startServer(this.#folder);
    this.#target.port = this.#server.port;
  }

  /** Points the service to the standby, like a name that follows the primary; it takes over when it is promoted. */
  leadToStandby(): void {
    if (this.#standby === undefined) throw new Error('the server has no standby');
    this.#server = this.#standby;
    this.#target.port = this.#standby.port;
  }

  /** Begins deposits and transfers on and between both shards. */
  async traffic(): Promise<Traffic> {
    return Traffic.begin(() => this.client);
  }

  /** What an orchestrator sees. */
  async readiness(): Promise<{ readonly status: number; readonly body: unknown }> {
    const { status, body } = await this.client.get('/health/ready');
    return { status, body };
  }

  /** Checks that requests, readiness and delivery soon work by themselves after a fault that has just ended. */
  async expectWell(): Promise<void> {
    await this.#seeThatAllIsWell(wellWithinMs + slownessMax * this.#healthyMs);
  }

  async #seeThatAllIsWell(withinMs: number): Promise<void> {
    const startedMs = performance.now();
    const soon = <T>(look: () => Promise<T>): Promise<T> =>
      vi.waitFor(look, { timeout: withinMs - (performance.now() - startedMs), interval: 50 });
    // These wallets have a separate currency, so that they are not counted with the money of the traffic.
    const open = (country: string) => soon(() => this.client.openWallet({ country, currency: 'USD' }));
    const [global, mexico] = await Promise.all([open('DE'), open('MX')]);
    await soon(async () => assert.equal((await this.readiness()).status, 200));
    // A session that was opened during the fault may refuse one more request; nothing is written then.
    const begin = (source: WalletBody, dest: WalletBody) => soon(() => this.#transfer(source, dest));
    const ids = await Promise.all([begin(global, mexico), begin(mexico, global)]);
    await soon(async () => {
      const transfers = await Promise.all(ids.map((id) => this.client.get(`/transfers/${id}`)));
      assert.deepEqual(
        transfers.map(({ body }) => body['state']),
        ['COMPLETED', 'COMPLETED'],
      );
    });
  }

  /** Checks that every transfer of the traffic has arrived, and that all money is there, no more and no less. */
  async expectSettled(traffic: Traffic): Promise<void> {
    await expectSettled(this.shards, traffic, settledWithinMs + slownessMax * this.#healthyMs);
    process.stdout.write(`answers: ${JSON.stringify(Object.fromEntries(traffic.recorder.counts))}\n`);
  }

  /** Kills every process, and removes the databases. */
  async end(): Promise<void> {
    for (const each of this.#processes) each.kill('SIGKILL');
    await Promise.all(this.#processes.map((each) => each.exitCode()));
    await this.proxy.close();
    await Promise.all([this.#server.stop(), this.#standby?.stop(), this.shards.global.drop()]);
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #transfer({ id: sourceId }: WalletBody, { id: destId }: WalletBody): Promise<string> {
    const { status, body } = await this.client.post('/transfers', { sourceId, destId, amount: '1' });
    assert.equal(status, 202);
    return String(body['id']);
  }
}

function startServer(folder: string): Promise<EmbeddedPostgres> {
  return EmbeddedPostgres.start({ directory: serverFolder(folder), settings: { fsync: 'off' } });
}

function serverFolder(folder: string): string {
  return join(folder, 'server');
}

interface ShardGroup {
  readonly group: number;
  readonly name: string;
  readonly members: { configs: object }[];
}

/** The configuration of a process that knows these shards. */
function withShards(tree: unknown, knows: KnownShards): unknown {
  const { framework } = structuredClone(tree) as {
    framework: {
      sharding: { 'default-shard': object; groups: ShardGroup[] };
    };
  };
  const { sharding } = framework;
  if (knows === 'exchanged') {
    const [first, second] = sharding.groups.flatMap(({ members }) => members);
    [first!.configs, second!.configs] = [second!.configs, first!.configs];
  } else if (knows !== 'both') {
    sharding.groups = sharding.groups.filter(({ name }) => name === knows);
  }
  sharding['default-shard'] = { group: sharding.groups[0]!.group, member: 0 };
  return { framework };
}

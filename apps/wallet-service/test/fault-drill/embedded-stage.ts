import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TestDatabase } from '@framework/testing/postgres';
import { Traffic } from '../faults/traffic.js';
import { ServiceProcess } from '../service-process.js';
import type { ShardDatabases } from '../start-test-service.js';
import { WalletClient } from '../wallet-client.js';
import type { DrillStage } from './drill-scene.js';

/** The databases are created first, which takes seconds, and much longer on a busy machine. */
const startTimeoutMs = 90_000;

/** The wallet service as it starts without a configuration: both shards are on the embedded server that it runs. */
export class EmbeddedStage implements DrillStage {
  readonly client: WalletClient;
  readonly shards: ShardDatabases;
  readonly #folder: string;
  readonly #service: ServiceProcess;

  private constructor(parts: {
    readonly client: WalletClient;
    readonly shards: ShardDatabases;
    readonly folder: string;
    readonly service: ServiceProcess;
  }) {
    this.client = parts.client;
    this.shards = parts.shards;
    this.#folder = parts.folder;
    this.#service = parts.service;
  }

  static async start(): Promise<EmbeddedStage> {
    const folder = await mkdtemp(join(tmpdir(), 'wallet-drill-'));
    await chmod(folder, 0o755);
    const service = new ServiceProcess({ WALLET_DATA: folder });
    const client = new WalletClient(await service.served(startTimeoutMs));
    const password = (await readFile(join(folder, 'cluster', 'password'), 'utf8')).trim();
    const [, , , port] = await postmasterFile(folder);
    const url = `postgres://postgres:${password}@127.0.0.1:${port}`;
    const shards = { global: new TestDatabase(url, 'global'), mexico: new TestDatabase(url, 'mexico') };
    return new EmbeddedStage({ client, shards, folder, service });
  }

  get log(): readonly string[] {
    return [this.#service.stdout, this.#service.stderr].flatMap((text) => text.split('\n'));
  }

  traffic(): Promise<Traffic> {
    return Traffic.begin(() => this.client);
  }

  /** Ends the server as a crash does. */
  async killServer(): Promise<void> {
    const [pid] = await postmasterFile(this.#folder);
    process.kill(Number(pid), 'SIGKILL');
    await this.#service.printed('The embedded PostgreSQL server has ended');
  }

  /** Resolves when the service has started the server again. */
  async serverRunsAgain(): Promise<void> {
    await this.#service.printed('The embedded PostgreSQL server is running again');
  }

  async end(): Promise<void> {
    this.#service.kill('SIGTERM');
    await this.#service.exitCode();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** The lines that the server has written about itself: its process's id, …, its port. */
async function postmasterFile(folder: string): Promise<readonly string[]> {
  return (await readFile(join(folder, 'cluster', 'data', 'postmaster.pid'), 'utf8')).split('\n');
}

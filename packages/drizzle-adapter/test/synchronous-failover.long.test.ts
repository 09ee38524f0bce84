import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type Account, type SuiteContext, decimal, firstShard } from '@framework/conformance';
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import { FaultProxy } from '@framework/testing';
import { expect, onTestFinished, test, vi } from 'vitest';
import { openRegistry, openSuite, suiteOn } from './fixtures/open-registry.js';
import { promote } from './fixtures/standby.js';
import { query } from './fixtures/query.js';

const name = 'wallet';
const patience = { timeout: 60_000, interval: 50 };
const settings = { 'statement-timeout-ms': 2_000, 'acquisition-timeout-ms': 1_000, 'minimum-idle': 0 };
const balance = 1_000_000;
const processCount = 2;
const callersPerProcess = 3;
/** How long unconfirmed commits have the time to be acknowledged wrongly. */
const unconfirmedMs = 5_000;
const waiting = "wait_event = 'SyncRep' and datname = current_database()";

test.each<[string, (servers: Servers) => Promise<unknown>]>([
  ['cancelled', ({ primary }) => endWaits(primary, 'pg_cancel_backend')],
  ['terminated', ({ primary }) => endWaits(primary, 'pg_terminate_backend')],
  ['ended by a restart', (servers) => servers.restart()],
])(
  'a failover loses no acknowledged commit, although waits for the synchronous standby were %s',
  { timeout: 300_000 },
  async (_title, interrupt) => {
    const servers = await Servers.start();
    const target = { host: '127.0.0.1', port: servers.primary.port };
    const proxy = await FaultProxy.to(target);
    onTestFinished(() => proxy.close());
    const url = servers.primary.url(name).replace(`:${target.port}/`, `:${proxy.port}/`);
    const suites = await Promise.all(Array.from({ length: processCount }, () => openSuite(url, settings)));
    const callers = new Callers(servers.account);
    for (const suite of suites)
      for (let caller = 0; caller < callersPerProcess; caller++) callers.start(suite);
    await vi.waitFor(() => expect(callers.acknowledged.size).toBeGreaterThan(20), patience);

    await servers.replication.refuse();
    const sessions = (): Promise<readonly object[]> =>
      query(servers.primary.url(name), `select from pg_stat_activity where ${waiting}`);
    await vi.waitFor(async () => expect((await sessions()).length).toBeGreaterThan(0), patience);
    await interrupt(servers);
    await delay(unconfirmedMs);

    await servers.primary.stop();
    await promote(servers.standby);
    target.port = servers.standby.port;
    proxy.cut('reset');
    const before = callers.acknowledged.size;
    await vi.waitFor(() => expect(callers.acknowledged.size).toBeGreaterThan(before), patience);
    await callers.stop();
    const rows = await query<{ key: string }>(
      servers.standby.url(name),
      'select key from eventlog.idempotency_keys',
    );
    const committed = new Set(rows.map(({ key }) => key));
    expect([...callers.acknowledged].filter((key) => !committed.has(key))).toEqual([]);
    const account = await suites[0]!.accounts.getById(servers.account.id);
    expect(Number(account.balance)).toBe(balance - committed.size);
  },
);

/** A primary with one database and one account, and a synchronous standby that receives its log through a proxy. */
class Servers {
  readonly account: Account;
  readonly standby: EmbeddedPostgres;
  readonly replication: FaultProxy;
  readonly #directory: string;
  #primary: EmbeddedPostgres;

  private constructor(
    account: Account,
    directory: string,
    primary: EmbeddedPostgres,
    standby: EmbeddedPostgres,
    replication: FaultProxy,
  ) {
    this.account = account;
    this.#directory = directory;
    this.#primary = primary;
    this.standby = standby;
    this.replication = replication;
  }

  static async start(): Promise<Servers> {
    const folder = await mkdtemp(join(tmpdir(), 'synchronous-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    await chmod(folder, 0o755);
    const [leading, following] = [join(folder, 'leading'), join(folder, 'following')];
    const first = await startIn(leading);
    await first.ensureDatabase(name);
    const registry = openRegistry([{ group: 0, member: 0, url: first.url(name) }]);
    await registry.ready();
    const account = await suiteOn(registry).openAccount(firstShard, { balance: decimal(String(balance)) });
    await registry.close();
    await first.stop();
    await promisify(execFile)('cp', ['-a', leading, following]);
    await writeFile(join(following, 'cluster', 'data', 'standby.signal'), '');
    const primary = await startIn(leading);
    const { host, port, user, password } = primary;
    const replication = await FaultProxy.to({ host, port });
    onTestFinished(() => replication.close());
    const source = `host=${host} port=${replication.port} user=${user} password=${password} application_name=standby`;
    const standby = await startIn(following, { hot_standby: 'on', primary_conninfo: source });
    await query(primary.url(name), `alter system set synchronous_standby_names = 'standby'`);
    await query(primary.url(name), 'select pg_reload_conf()');
    await vi.waitFor(async () => {
      const text = `select from pg_stat_replication where sync_state = 'sync'`;
      if ((await query(primary.url(name), text)).length === 0)
        throw new Error('The standby is not synchronous yet');
    }, patience);
    return new Servers(account, leading, primary, standby, replication);
  }

  get primary(): EmbeddedPostgres {
    return this.#primary;
  }

  async restart(): Promise<void> {
    const { port } = this.#primary;
    await this.#primary.stop();
    this.#primary = await startIn(this.#directory, {}, port);
  }
}

async function startIn(
  directory: string,
  own: Readonly<Record<string, string>> = {},
  port?: number,
): Promise<EmbeddedPostgres> {
  const server = await EmbeddedPostgres.start({
    directory,
    settings: { fsync: 'off', ...own },
    installation: process.env['TEST_POSTGRES_INSTALLATION'],
    ...(port !== undefined && { port }),
  });
  onTestFinished(() => server.stop());
  return server;
}

function endWaits(primary: EmbeddedPostgres, end: string): Promise<unknown> {
  return query(primary.url(name), `select ${end}(pid) from pg_stat_activity where ${waiting}`);
}

/** Callers that withdraw 1 from an account again and again, and repeat each request with its key until it is answered. */
class Callers {
  /** The keys of the requests that were answered. */
  readonly acknowledged = new Set<string>();
  readonly #account: Account;
  readonly #running: Promise<void>[] = [];
  #isStopping = false;

  constructor(account: Account) {
    this.#account = account;
  }

  start(suite: SuiteContext): void {
    this.#running.push(this.#run(suite));
  }

  /** Waits until each caller has an answer to its last request. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#running);
  }

  async #run(suite: SuiteContext): Promise<void> {
    while (!this.#isStopping) {
      const idempotencyKey = randomUUID();
      await vi.waitFor(() => suite.withdraw(this.#account, '1', { idempotencyKey }), {
        timeout: 240_000,
        interval: 50,
      });
      this.acknowledged.add(idempotencyKey);
    }
  }
}

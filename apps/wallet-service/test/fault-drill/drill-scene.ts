import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { vi } from 'vitest';
import { rowsOf } from '../database-session.js';
import type { Traffic } from '../faults/traffic.js';
import type { ServiceProcess } from '../service-process.js';
import type { ShardDatabases } from '../start-test-service.js';
import { type Answer, type WalletBody, WalletClient } from '../wallet-client.js';

/** The service that a drill has to break. */
export interface DrillStage {
  /** Sends requests to the process that answers them. */
  readonly client: WalletClient;
  /** Every line that the processes have logged, or printed for people. */
  readonly log: readonly string[];
  readonly shards: ShardDatabases;
  traffic(): Promise<Traffic>;
  end(): Promise<void>;
}

const waitingCount = 300;
const requestsAtATime = 10;
const answerTimeoutMs = 30_000;
const repeatPauseMs = 200;
const statePauseMs = 100;
const blockedTimeoutMs = 180_000;

/** Further requests of a drill, besides the traffic: transfers that wait, and requests that show whether everything works. */
export class DrillScene<Stage extends DrillStage = DrillStage> {
  readonly stage: Stage;
  /** The source of the waiting transfers, on the shard (0, 0). */
  readonly source: WalletBody;
  /** The destination of the waiting transfers, on the shard (1, 0). */
  readonly dest: WalletBody;
  /** A wallet on each shard that others do not use, in separate currencies. */
  readonly probes: readonly [WalletBody, WalletBody];
  readonly #waiting: string[] = [];
  #locker: pg.Client | undefined;
  #asked: ServiceProcess | undefined;
  #askedClient: WalletClient | undefined;

  private constructor(stage: Stage, wallets: Pick<DrillScene, 'source' | 'dest' | 'probes'>) {
    this.stage = stage;
    this.source = wallets.source;
    this.dest = wallets.dest;
    this.probes = wallets.probes;
  }

  static async on<Stage extends DrillStage>(stage: Stage): Promise<DrillScene<Stage>> {
    const open = (country: string, currency: string) => stage.client.openWallet({ country, currency });
    const source = await stage.client.openWallet({ currency: 'CHF', initialBalance: String(waitingCount) });
    const dest = await open('MX', 'CHF');
    return new DrillScene(stage, {
      source,
      dest,
      probes: [await open('DE', 'GBP'), await open('MX', 'GBP')],
    });
  }

  /** The transfers that were made to wait. */
  get waiting(): readonly string[] {
    return this.#waiting;
  }

  /** Sends requests to the process that shows the fault. */
  get asked(): WalletClient {
    return this.#askedClient ?? this.stage.client;
  }

  /** Makes a process other than the one that answers requests show the fault. */
  async ask(started: ServiceProcess): Promise<void> {
    this.#asked = started;
    this.#askedClient = new WalletClient(await started.printed('http://'));
  }

  /** Stops the process that shows the fault, as operators do. */
  async stopAsked(): Promise<void> {
    this.#asked?.kill('SIGTERM');
    await this.#asked?.exitCode();
    this.#askedClient = undefined;
  }

  /** Locks the wallets of the shard (1, 0), except those of the traffic. */
  async lock(): Promise<void> {
    const locker = new pg.Client({ connectionString: this.stage.shards.mexico.url });
    // The server may be killed during the session.
    locker.on('error', () => undefined);
    await locker.connect();
    await locker.query('begin');
    const ids = [this.dest.id, this.probes[1].id];
    await locker.query('select from wallets where id = any($1) for update', [ids]);
    this.#locker = locker;
  }

  async unlock(): Promise<void> {
    await this.#locker?.query('rollback');
    await this.#locker?.end();
  }

  /** Begins transfers to the faulty shard, and resolves when each of them has been tried and waits for its next attempt. */
  async sendWaiting(): Promise<void> {
    const { id: sourceId } = this.source;
    const bodies = Array.from({ length: waitingCount }, () => ({
      sourceId,
      destId: this.dest.id,
      amount: '1',
    }));
    const senders = Array.from({ length: requestsAtATime }, async () => {
      for (let body = bodies.pop(); body !== undefined; body = bodies.pop())
        this.#waiting.push(await this.#accepted(body));
    });
    await Promise.all(senders);
    const text = `select distinct model_id from eventlog.blocked_models
      where model_id = any($1) and attempts + uncounted > 0`;
    const blocked = () => rowsOf(this.stage.shards.global, text, [this.#waiting]);
    const isBlocked = async (): Promise<boolean> => (await blocked()).length === waitingCount;
    await vi.waitUntil(isBlocked, { timeout: blockedTimeoutMs, interval: 250 });
  }

  /** How many of the waiting transfers have not ended. */
  async unfinishedCount(): Promise<number> {
    const text = `select from transfers where id = any($1) and state = 'INITIATED'`;
    return (await rowsOf(this.stage.shards.global, text, [this.#waiting])).length;
  }

  /** Deposits into a separate wallet of a shard, whose balance is not checked. */
  async deposit(into: WalletBody, client: WalletClient = this.stage.client): Promise<Answer> {
    return post(client, `/wallets/${into.id}/deposit`, { amount: '1' }, randomUUID());
  }

  /** Transfers between the shards in both directions, and resolves when the money has arrived. */
  async transferBetweenProbes(over: AbortSignal): Promise<void> {
    const [global, mexico] = this.probes;
    const directions = [
      { sourceId: global.id, destId: mexico.id },
      { sourceId: mexico.id, destId: global.id },
    ];
    await Promise.all(
      directions.map(async (ends) => {
        const id = await this.#accepted({ ...ends, amount: '1' }, over);
        for (let state: unknown; state !== 'COMPLETED' && !over.aborted; await delay(statePauseMs)) {
          const transfer = await this.stage.client.get(`/transfers/${id}`).catch(() => undefined);
          state = transfer?.body['state'];
        }
      }),
    );
  }

  async #accepted(transfer: object, over: AbortSignal = new AbortController().signal): Promise<string> {
    const key = randomUUID();
    while (!over.aborted) {
      const answer = await post(this.stage.client, '/transfers', transfer, key).catch(() => undefined);
      if (answer?.status === 202) return String(answer.body['id']);
      await delay(repeatPauseMs);
    }
    return '';
  }
}

function post(client: WalletClient, path: string, body: object, key: string): Promise<Answer> {
  return client.send(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(answerTimeoutMs),
  });
}

import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Big } from 'big.js';
import type { Answer, WalletBody, WalletClient } from '../wallet-client.js';

const pauseMs = 200;
/** How many requests of one wallet are under way at most. */
const runningMax = 10;
const answerTimeoutMs = 30_000;
const repeatPauseMs = 200;
const initialBalance = 1_000_000;

/** A write of a client, with the key under which it is repeated. */
interface Write {
  readonly path: string;
  readonly body: Readonly<Record<string, string>>;
  readonly key: string;
}

/**
 * What clients do while something fails: deposits and transfers on and between two shards, each under a key of its own. Those
 * that got no final answer are repeated under their keys in the end, so that it is known of each what became of it.
 */
export class Traffic {
  /** How often each answer came, such as `200`, `503 shard-unavailable` or `none`. */
  readonly answers: Record<string, number> = {};
  /** The transfers that were accepted. */
  readonly transfers = new Set<string>();
  readonly #client: () => WalletClient;
  readonly #unknown: Write[] = [];
  readonly #over = new AbortController();
  readonly #sending: Promise<void>;
  #deposited = new Big(0);

  private constructor(client: () => WalletClient, wallets: readonly WalletBody[]) {
    this.#client = client;
    this.#sending = this.#send(wallets);
  }

  /**
   * Opens wallets in EUR on both shards, and begins.
   *
   * @param client speaks with the service that runs now
   */
  static async begin(client: () => WalletClient): Promise<Traffic> {
    const opened = ['DE', 'MX', 'DE', 'MX'].map((country) =>
      client().openWallet({ country, initialBalance: String(initialBalance) }),
    );
    return new Traffic(client, await Promise.all(opened));
  }

  /** How much money there must be in EUR: what was there first, and every deposit that was acknowledged. */
  get money(): string {
    return this.#deposited.plus(4 * initialBalance).toFixed();
  }

  /** Sends nothing more, and waits until every request has had a final answer. */
  async end(): Promise<void> {
    this.#over.abort();
    await this.#sending;
    for (let write = this.#unknown.pop(); write !== undefined; write = this.#unknown.pop()) {
      if (!(await this.#write(write))) await delay(repeatPauseMs);
    }
  }

  /** Each wallet has requests of its own under way, so that a shard that is silent does not hold up those of the other. */
  async #send(wallets: readonly WalletBody[]): Promise<void> {
    await Promise.all(wallets.map((wallet) => this.#sendFrom(wallet, wallets)));
  }

  async #sendFrom(source: WalletBody, wallets: readonly WalletBody[]): Promise<void> {
    const { signal } = this.#over;
    const others = wallets.filter((wallet) => wallet !== source);
    const running = new Set<Promise<unknown>>();
    for (let n = 0; !signal.aborted; n++) {
      const write = n % 2 === 0 ? deposit(source) : transfer(source, others[(n >> 1) % others.length]!);
      const sent: Promise<unknown> = this.#write(write).finally(() => running.delete(sent));
      running.add(sent);
      if (running.size >= runningMax) await Promise.race(running);
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
    await Promise.all(running);
  }

  /** @returns whether the answer was final; one that was not is sent again in the end */
  async #write(write: Write): Promise<boolean> {
    const { path, body, key } = write;
    const answer = await this.#client()
      .send(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': key },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(answerTimeoutMs),
      })
      .catch(() => undefined);
    const said = answer === undefined ? 'none' : sayingOf(answer);
    this.answers[said] = (this.answers[said] ?? 0) + 1;
    if (answer === undefined || answer.status >= 500 || answer.status === 409) {
      this.#unknown.push(write);
      return false;
    }
    if (answer.status === 200) this.#deposited = this.#deposited.plus(body['amount']!);
    if (answer.status === 202) this.transfers.add(String(answer.body['id']));
    return true;
  }
}

function deposit({ id }: WalletBody): Write {
  return { path: `/wallets/${id}/deposit`, body: { amount: '1' }, key: randomUUID() };
}

function transfer({ id: sourceId }: WalletBody, { id: destId }: WalletBody): Write {
  return { path: '/transfers', body: { sourceId, destId, amount: '1' }, key: randomUUID() };
}

function sayingOf({ status, body }: Answer): string {
  return status < 300 ? String(status) : `${status} ${String(body['code'])}`;
}

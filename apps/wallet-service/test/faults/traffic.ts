import { setTimeout as delay } from 'node:timers/promises';
import { CallRecorder, type Verdict } from '@framework/testing/record';
import { Big } from 'big.js';
import type { Answer, WalletBody, WalletClient } from '../wallet-client.js';

const pauseMs = 200;
/** How many requests of one wallet are under way at most. */
const runningMax = 10;
const initialBalance = 1_000_000;

/**
 * What clients do while something fails: deposits and transfers on and between two shards, each under a key of its own. Those
 * that got no final answer are repeated under their keys in the end, so that it is known of each what became of it.
 */
export class Traffic {
  /** The deposits and transfers, with what clients were told. */
  readonly recorder = new CallRecorder<Answer>({ judge: verdictOf });
  readonly #client: () => WalletClient;
  readonly #wallets: readonly WalletBody[];
  readonly #over = new AbortController();
  readonly #sending: Promise<unknown>;

  private constructor(client: () => WalletClient, wallets: readonly WalletBody[]) {
    this.#client = client;
    this.#wallets = wallets;
    this.#sending = Promise.all(wallets.map((wallet) => this.#sendFrom(wallet)));
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

  /** The transfers that were accepted. */
  get transfers(): ReadonlySet<string> {
    return new Set(this.#accepted(202).map(({ body }) => String(body['id'])));
  }

  /** How much money there must be in EUR: what was there first, and every deposit that was acknowledged. */
  get money(): string {
    return new Big(4 * initialBalance).plus(this.#accepted(200).length).toFixed();
  }

  /** Whether what was asked of an action is about one of its wallets. */
  owns(params: unknown): boolean {
    const text = JSON.stringify(params);
    return this.#wallets.some(({ id }) => text.includes(id));
  }

  /** Sends nothing more, and waits until every request has had a final answer. */
  async end(): Promise<void> {
    this.#over.abort();
    await this.#sending;
    await this.recorder.settle();
  }

  /** The last answers of the calls that were answered so. */
  #accepted(status: number): readonly Answer[] {
    return this.recorder.calls
      .map(({ answers }) => answers.at(-1))
      .filter((answer): answer is Answer => answer?.status === status);
  }

  /** Each wallet has requests of its own under way, so that a shard that is silent does not hold up those of the other. */
  async #sendFrom(source: WalletBody): Promise<void> {
    const { signal } = this.#over;
    const others = this.#wallets.filter((wallet) => wallet !== source);
    const running = new Set<Promise<unknown>>();
    for (let n = 0; !signal.aborted; n++) {
      const { id: destId } = others[(n >> 1) % others.length]!;
      const call =
        n % 2 === 0
          ? this.#post(`/wallets/${source.id}/deposit`, { amount: '1' })
          : this.#post('/transfers', { sourceId: source.id, destId, amount: '1' });
      const sent: Promise<unknown> = call.finally(() => running.delete(sent));
      running.add(sent);
      if (running.size >= runningMax) await Promise.race(running);
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
    await Promise.all(running);
  }

  async #post(path: string, body: object): Promise<void> {
    await this.recorder.call(`POST ${path}`, (key, signal) =>
      this.#client().send(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': key },
        body: JSON.stringify(body),
        signal,
      }),
    );
  }
}

function verdictOf({ status, body }: Answer): Verdict {
  if (status < 300) return { outcome: 'ok', says: String(status), result: [status, body] };
  const says = `${status} ${String(body['code'])}`;
  return { outcome: status >= 500 || status === 409 ? 'unknown' : 'refused', says };
}

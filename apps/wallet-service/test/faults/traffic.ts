import { setTimeout as delay } from 'node:timers/promises';
import { CallRecorder, type Verdict } from '@framework/testing/record';
import { Big } from 'big.js';
import type { Answer, WalletBody, WalletClient } from '../wallet-client.js';

const pauseMs = 200;
/** The maximum number of running requests of one wallet. */
const runningMax = 10;
const initialBalance = 1_000_000;

/**
 * What clients do while something fails: deposits and transfers on and between two shards, each with its own key. Requests
 * without a final answer are repeated with their keys at the end, so that the outcome of each is known.
 */
export class Traffic {
  /** The deposits and transfers, with the answers to clients. */
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
   * Opens wallets in EUR on both shards, and begins to send requests.
   *
   * @param client sends requests to the current process of the service
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

  /** How much money there must be in EUR: the initial balances, and every deposit that was acknowledged. */
  get money(): string {
    return new Big(4 * initialBalance).plus(this.#accepted(200).length).toFixed();
  }

  /** Whether an action's params name one of its wallets. */
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

  /** The last answers of the calls with this outcome. */
  #accepted(status: number): readonly Answer[] {
    return this.recorder.calls
      .map(({ answers }) => answers.at(-1))
      .filter((answer): answer is Answer => answer?.status === status);
  }

  /** Each wallet has its own running requests, so that a silent shard does not hold up the wallets of the other. */
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

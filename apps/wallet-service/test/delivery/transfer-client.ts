import { randomUUID } from 'node:crypto';
import { WalletClient } from '../wallet-client.js';

const answerTimeoutMs = 5_000;

/** The final outcome of a request: with an effect, or refused by a rule. */
export interface Outcome {
  readonly accepted: boolean;
  readonly body: Readonly<Record<string, unknown>>;
}

/** A client that repeats a request with its key until it knows the outcome for certain. */
export class TransferClient {
  /** Requests that got no answer at all. */
  lostCount = 0;
  /** Repeats of a request that had already taken effect. */
  replayedCount = 0;
  readonly #url: () => Promise<string>;

  /** @param url where the service is at present */
  constructor(url: () => Promise<string>) {
    this.#url = url;
  }

  /** Sends a write until it is accepted or refused. */
  async post(path: string, body: object): Promise<Outcome> {
    const key = randomUUID();
    for (;;) {
      const answer = await this.#send(path, body, key);
      if (answer === undefined || answer.status >= 500 || answer.body['code'] === 'stale-record') continue;
      if (answer.headers['idempotency-replayed'] === 'true') this.replayedCount++;
      return { accepted: answer.status < 300, body: answer.body };
    }
  }

  async #send(path: string, body: object, key: string) {
    const client = new WalletClient(await this.#url());
    try {
      return await client.send(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': key },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(answerTimeoutMs),
      });
    } catch {
      this.lostCount++;
      return undefined;
    }
  }
}

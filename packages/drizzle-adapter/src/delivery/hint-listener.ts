import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

const reconnectDelayMs = 1_000;

/**
 * Listens for hints of other processes on a connection of its own, which is made again when it breaks.
 *
 * A hint may be lost; whoever listens asks the log from time to time as well.
 */
export class HintListener {
  readonly #settings: pg.ClientConfig;
  readonly #channelName: string;
  readonly #onHint: () => void;
  readonly #closing = new AbortController();
  #client: pg.Client | undefined;
  readonly #running: Promise<void>;

  constructor(settings: pg.ClientConfig, channelName: string, onHint: () => void) {
    this.#settings = settings;
    this.#channelName = channelName;
    this.#onHint = onHint;
    this.#running = this.#run();
  }

  /** Stops listening. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#client?.end();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await this.#listenUntilBroken().catch(() => undefined);
      // What was committed while nobody listened.
      this.#onHint();
      await delay(reconnectDelayMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #listenUntilBroken(): Promise<void> {
    const client = new pg.Client({ ...this.#settings, keepAlive: true });
    this.#client = client;
    const ended = new Promise<void>((resolve) => {
      client.once('end', resolve);
      client.on('error', () => {
        resolve();
      });
    });
    client.on('notification', this.#onHint);
    try {
      await client.connect();
      await client.query(`listen ${this.#channelName}`);
      await ended;
    } finally {
      await client.end();
    }
  }
}

import { type NotificationChannel, outsideRequests } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

import { ClosingClient, isBehindPooler, streamOf } from '../connection/client.js';
import type { Connection } from '../connection/connection.js';

const eventLogChannel = 'eventlog';

/** How processes tell each other of commits to one PostgreSQL database: `notify` and `listen`. */
export class PgNotificationChannel implements NotificationChannel {
  readonly #manager: Connection;
  readonly #settings: NotificationSettings;

  /** @param settings where to listen, on connections of its own */
  constructor(manager: Connection, settings: NotificationSettings) {
    this.#manager = manager;
    this.#settings = settings;
  }

  async notify(): Promise<void> {
    await this.#manager.query({ text: `notify ${eventLogChannel}` });
  }

  async listen(onNotification: () => void): Promise<() => Promise<void>> {
    const listener = new NotificationListener(this.#settings, eventLogChannel, onNotification);
    return () => listener.close();
  }
}

const reconnectDelayMs = 1_000;
/** After how long it is tried again to listen through a pooler, which may have been taken away. */
const pooledDelayMs = 60_000;
/** How long the server may take to answer, in milliseconds. */
const answerTimeoutMs = 10_000;

/** How notifications are listened for. */
export interface NotificationSettings {
  /** Where to connect and as whom; asked before each connection. */
  readonly client: () => pg.ClientConfig;
  /** After how long the connection is replaced; 0 is never. */
  readonly lifetimeMaxMs: number;
}

/**
 * Listens for notifications of other processes on a connection of its own, which is made again when it breaks.
 *
 * A notification may be lost; listeners poll the log as well. Behind a pooler no notifications arrive: the listening session would be
 * handed to other clients.
 */
export class NotificationListener {
  readonly #settings: NotificationSettings;
  readonly #channelName: string;
  readonly #onNotification: () => void;
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;

  constructor(settings: NotificationSettings, channelName: string, onNotification: () => void) {
    this.#settings = settings;
    this.#channelName = channelName;
    this.#onNotification = onNotification;
    this.#running = outsideRequests(() => this.#run());
  }

  /** Stops listening, whether the server answers or not. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const isPooled = await this.#listenUntilBroken().catch(() => false);
      // What was committed while nobody listened.
      this.#onNotification();
      const delayMs = isPooled ? pooledDelayMs : reconnectDelayMs;
      await delay(delayMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** @returns whether it did not listen, because a pooler stands between */
  async #listenUntilBroken(): Promise<boolean> {
    const { signal } = this.#closing;
    const client = new ClosingClient({
      ...this.#settings.client(),
      keepAlive: true,
      connectionTimeoutMillis: answerTimeoutMs,
      query_timeout: answerTimeoutMs,
    });
    const ended = new Promise<void>((resolve) => {
      client.once('end', resolve);
      client.on('error', () => {
        resolve();
      });
    });
    client.on('notification', this.#onNotification);
    // Waits for nobody: a server that is silent would not end the connection either.
    const destroy = (): void => {
      streamOf(client).destroy();
    };
    signal.addEventListener('abort', destroy);
    const { lifetimeMaxMs } = this.#settings;
    const lifetime = lifetimeMaxMs > 0 ? setTimeout(destroy, lifetimeMaxMs).unref() : undefined;
    try {
      await client.connect();
      const isPooled = await isBehindPooler(client);
      if (!isPooled) {
        await client.query(`listen ${this.#channelName}`);
        await ended;
      }
      return isPooled;
    } finally {
      clearTimeout(lifetime);
      signal.removeEventListener('abort', destroy);
      destroy();
    }
  }
}

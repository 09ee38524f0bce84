import { type NotificationChannel, outsideRequests } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

import { ClosingClient, isBehindPooler, streamOf } from '../connection/client.js';
import type { Connection } from '../connection/connection.js';

const channelName = 'eventlog';

/** Lets processes notify each other of commits to one PostgreSQL database, with `notify` and `listen`. */
export class PgNotificationChannel implements NotificationChannel {
  readonly #manager: Connection;
  readonly #settings: NotificationSettings;

  /** @param settings how to connect for listening, on separate connections */
  constructor(manager: Connection, settings: NotificationSettings) {
    this.#manager = manager;
    this.#settings = settings;
  }

  async notify(): Promise<void> {
    await this.#manager.query({ text: `notify ${channelName}` });
  }

  /** @throws DatabasesClosedError `databases-closed` once the database is closed */
  async listen(onNotification: () => void): Promise<() => Promise<void>> {
    this.#settings.closing?.throwIfAborted();
    const listener = new NotificationListener(this.#settings, onNotification);
    return () => listener.close();
  }
}

const reconnectDelayMs = 1_000;
/** How long to wait before listening is tried again behind a pooler, in case the pooler has been removed. */
const pooledDelayMs = 60_000;
/** How long the server may take to answer, in milliseconds. */
const answerTimeoutMs = 10_000;

/** The connection on which to listen for notifications. */
export interface NotificationSettings {
  /** Where and as whom to connect; called before each connection. */
  readonly client: () => pg.ClientConfig;
  /** The age at which the connection is replaced; 0 means never. */
  readonly lifetimeMaxMs: number;
  /** Ends listening when the database is closed; its reason is the error that later calls of `listen` throw. */
  readonly closing?: AbortSignal;
}

/**
 * Listens for notifications of other processes on its own connection, and reconnects when it breaks.
 *
 * Notifications may be lost, so their receivers poll the log as well. Behind a pooler no notifications arrive, because
 * the pooler would give the listening session to other clients.
 */
export class NotificationListener {
  readonly #settings: NotificationSettings;
  readonly #onNotification: () => void;
  readonly #closing = new AbortController();
  readonly #signal: AbortSignal;
  readonly #running: Promise<void>;

  constructor(settings: NotificationSettings, onNotification: () => void) {
    this.#settings = settings;
    this.#onNotification = onNotification;
    const { closing } = settings;
    const { signal } = this.#closing;
    this.#signal = closing === undefined ? signal : AbortSignal.any([signal, closing]);
    this.#running = outsideRequests(() => this.#run());
  }

  /** Stops listening, even if the server does not answer. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const signal = this.#signal;
    while (!signal.aborted) {
      const isPooled = await this.#listenUntilBroken().catch(() => false);
      // The last notifications before the connection broke may have been lost.
      this.#onNotification();
      const delayMs = isPooled ? pooledDelayMs : reconnectDelayMs;
      await delay(delayMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** @returns true when it did not listen because there is a pooler in between */
  async #listenUntilBroken(): Promise<boolean> {
    const signal = this.#signal;
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
    // Does not wait for the server: a silent one would never close the connection.
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
        await client.query(`listen ${channelName}`);
        // Commits have been missed that were notified while no connection listened.
        this.#onNotification();
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

import type pg from 'pg';

import { ClosingClient, awaitsAnswer, streamOf } from './client.js';
import { sqlStateOf } from './storage-error.js';

/**
 * How long a connection may be silent before the server is asked about it, and how long that may take, in milliseconds.
 */
const silenceMaxMs = 5_000;
/** SQLSTATEs of a server that is too busy for the question. It does answer, so the connection is kept. */
const crowdedStates = /^53/;

/** Finds the sessions of a connection. A pooler may have appended its client's address to the name. */
const isOwn = 'starts_with(application_name, $1)';
/** When `track_activities` is off, the wait event shows whether a session is working. */
const isWorking = `(state = 'active' or state = 'disabled' and wait_event is distinct from 'ClientRead')`;
const isWaiting = `(state like 'idle in transaction%' or state = 'disabled' and wait_event = 'ClientRead')`;

/**
 * Destroys a connection whose answer will not come, where statements have no time limit: during a migration, or while
 * waiting for a lock.
 *
 * After 5 s of silence it asks the server over another connection whether the session is working. If it is not, or the
 * server does not answer within another 5 s, the connection is destroyed and its statement rejected. The session is
 * also ended on the server, where it might hold locks for a client that is gone. A lost answer says nothing about
 * whether the statement was committed.
 */
export class SilenceWatch {
  readonly #client: pg.Client;
  readonly #settings: pg.ClientConfig & { readonly application_name: string };

  /**
   * @param settings the connection's settings; no other connection's application name may start with this one's.
   * Poolers pass the name on
   */
  constructor(client: pg.Client, settings: pg.ClientConfig & { readonly application_name: string }) {
    this.#client = client;
    this.#settings = settings;
  }

  /** Starts the watch; call it once the client is connected. */
  start(): void {
    const stream = streamOf(this.#client);
    stream.on('timeout', () => void this.#look());
    stream.setTimeout(silenceMaxMs);
  }

  async #look(): Promise<void> {
    const stream = streamOf(this.#client);
    const { bytesRead } = stream;
    const isSilent = (): boolean => stream.bytesRead === bytesRead && !stream.destroyed;
    if (await this.#hasReason(isSilent)) {
      const reason = `the server sent nothing for ${silenceMaxMs / 1_000} s and is not working on the statement`;
      stream.destroy(new Error(`The connection to the server was closed: ${reason}`));
    } else if (!stream.destroyed) {
      stream.setTimeout(silenceMaxMs);
    }
  }

  async #hasReason(isSilent: () => boolean): Promise<boolean> {
    return awaitsAnswer(this.#client) && !(await this.#isAtWork(isSilent)) && isSilent();
  }

  /**
   * Whether the server is working on the statement. Also ends a session that waits for its client: the two would wait
   * for each other.
   */
  async #isAtWork(isSilent: () => boolean): Promise<boolean> {
    const client = new ClosingClient({
      ...this.#settings,
      application_name: 'framework watch',
      connectionTimeoutMillis: silenceMaxMs,
      query_timeout: silenceMaxMs,
    });
    client.on('error', () => undefined);
    try {
      await client.connect();
      const own = [this.#settings.application_name];
      const { rows } = await client.query(
        `select from pg_stat_activity where ${isOwn} and ${isWorking}`,
        own,
      );
      if (rows.length > 0) return true;
      if (isSilent())
        await client.query(
          `select pg_terminate_backend(pid) from pg_stat_activity where ${isOwn} and ${isWaiting}`,
          own,
        );
      return false;
    } catch (error) {
      return crowdedStates.test(sqlStateOf(error) ?? '');
    } finally {
      // Not awaited: the network may be silent again.
      void client.end().catch(() => undefined);
    }
  }
}

import { type EventLoopUtilization, performance } from 'node:perf_hooks';
import type pg from 'pg';

import { ClosingClient, awaitsAnswer, streamOf } from './client.js';
import { sqlStateOf } from './storage-error.js';

/** How long a connection says nothing until the server is asked about it, and how long that may take. */
const silenceMaxMs = 5_000;
/** SQLSTATEs of a server that has no room for the question: it answers, so the connection gets the benefit of the doubt. */
const crowdedStates = /^53/;

/** The sessions of a connection: a pooler may have added to its name who its client is. */
const isOwn = 'starts_with(application_name, $1)';
/** Where activities are not tracked, what a session waits for tells whether it is at work. */
const isWorking = `(state = 'active' or state = 'disabled' and wait_event is distinct from 'ClientRead')`;
const isWaiting = `(state like 'idle in transaction%' or state = 'disabled' and wait_event = 'ClientRead')`;

/**
 * Ends a connection that waits for an answer which does not come, where statements may take as long as they need: a
 * migration, or waiting for a lock.
 *
 * When the connection has said nothing for 5 s, the server is asked on another one whether it is at work for it. If it is
 * not, or cannot be asked within another 5 s, the connection is destroyed, and its statement is rejected. Its session is ended on the
 * server as well, where it would hold locks for a client that is gone. An answer that was lost says nothing about what was committed.
 */
export class SilenceWatch {
  readonly #client: pg.Client;
  readonly #settings: pg.ClientConfig & { readonly application_name: string };

  /** @param settings of the connection; only this one has an application name that begins so, which poolers keep for their clients */
  constructor(client: pg.Client, settings: pg.ClientConfig & { readonly application_name: string }) {
    this.#client = client;
    this.#settings = settings;
  }

  /** To be called when the client is connected. */
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
      const reason = `it said nothing for ${silenceMaxMs / 1_000} s and is not at work`;
      stream.destroy(new Error(`The connection to the server was given up: ${reason}`));
    } else if (!stream.destroyed) {
      stream.setTimeout(silenceMaxMs);
    }
  }

  async #hasReason(isSilent: () => boolean): Promise<boolean> {
    return awaitsAnswer(this.#client) && !(await this.#isAtWork(isSilent)) && isSilent();
  }

  /** Ends the session when it waits for its client, which has heard nothing of it either. */
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
      // Not waited for: the network may be silent again.
      void client.end().catch(() => undefined);
    }
  }
}

/** How often the load is measured, in milliseconds. */
const intervalMs = 100;
/** The share of the time from which the event loop counts as busy. */
const busyShare = 0.5;

/** Tells whether this process has more to do than time to spare. */
export class EventLoopLoad {
  #measuredAtMs = 0;
  #measured: EventLoopUtilization = performance.eventLoopUtilization();
  #isBusy = false;

  /** Whether the event loop was busy for at least half of the last tenth of a second or so. */
  isBusy(nowMs: number): boolean {
    if (nowMs - this.#measuredAtMs < intervalMs) return this.#isBusy;
    const now = performance.eventLoopUtilization();
    this.#isBusy = performance.eventLoopUtilization(now, this.#measured).utilization >= busyShare;
    this.#measured = now;
    this.#measuredAtMs = nowMs;
    return this.#isBusy;
  }
}

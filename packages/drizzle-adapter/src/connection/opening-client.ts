import type pg from 'pg';

import { ClosingClient, streamOf } from './client.js';

/** The error of a new connection that was not ready in time because the server stopped answering. */
class UnansweredConnectionError extends Error {
  override readonly name: string = 'UnansweredConnectionError';

  constructor() {
    super('The server did not answer a new connection in time');
  }
}

/** The configuration of an {@link OpeningClient}. */
export interface OpeningClientConfig extends pg.ClientConfig {
  /** Where and as whom to connect. Called for each client, because certificate files are renewed. */
  readonly address?: () => pg.ClientConfig;
}

/** Whether a pool's error is, or was caused by, a connection that the server did not answer in time. */
export function isUnanswered(error: unknown): boolean {
  // The pool's own timer may fire before the connection has closed, and then wraps the error in one with another text.
  const { cause } = error instanceof Error ? error : {};
  return error instanceof UnansweredConnectionError || cause instanceof UnansweredConnectionError;
}

/**
 * A pool's client with one deadline for login and preparation: `connectionTimeoutMillis` after it is created, its
 * connection is destroyed.
 *
 * The pool itself limits only the login, but a server may accept the login and then stop answering.
 */
export class OpeningClient extends ClosingClient {
  readonly #queryTimeoutMs: number | undefined;
  readonly #deadlines: NodeJS.Timeout[] = [];
  /** Why the address could not be determined. */
  readonly #failure: Error | undefined;
  #isLate = false;

  constructor(config: OpeningClientConfig = {}) {
    const { address, failure } = addressOf(config);
    super({ ...config, ...address });
    this.#failure = failure;
    this.#queryTimeoutMs = config.query_timeout;
    this.#endWithin(config.connectionTimeoutMillis);
  }

  override connect(): Promise<pg.Client>;
  override connect(callback: (error: Error | null) => void): void;
  override connect(callback?: (error: Error | null) => void): Promise<pg.Client> | void {
    if (callback === undefined) return super.connect();
    const done = (error: Error | null): void => {
      // The pool drops the client here, while the server may still wait for the rest of the login.
      if (error !== null) streamOf(this).destroy();
      callback(error && this.#reasonOf(error));
    };
    // An error thrown by the constructor would escape the pool.
    if (this.#failure !== undefined) process.nextTick(done, this.#failure);
    else super.connect(done);
  }

  /**
   * Runs the work that makes a connection ready after its login. When it is done, there is no deadline any more.
   *
   * @throws an error that {@link isUnanswered} recognises, when the deadline passes or a statement times out
   */
  async prepare(work: () => Promise<void>): Promise<void> {
    // Set before the timers of the statements, so that it fires first.
    this.#endWithin(this.#queryTimeoutMs);
    try {
      await work();
    } catch (error) {
      throw this.#reasonOf(error);
    } finally {
      this.#endDeadlines();
    }
  }

  #reasonOf<E>(error: E): E | UnansweredConnectionError {
    this.#endDeadlines();
    return this.#isLate ? new UnansweredConnectionError() : error;
  }

  #endWithin(timeoutMs: number | undefined): void {
    if (timeoutMs === undefined) return;
    const deadline = setTimeout(() => {
      this.#isLate = true;
      streamOf(this).destroy();
    }, timeoutMs);
    this.#deadlines.push(deadline.unref());
  }

  #endDeadlines(): void {
    for (const deadline of this.#deadlines) clearTimeout(deadline);
  }
}

function addressOf({ address }: OpeningClientConfig): {
  readonly address?: pg.ClientConfig | undefined;
  readonly failure?: Error;
} {
  try {
    return { address: address?.() };
  } catch (error) {
    return { failure: error instanceof Error ? error : new Error(String(error)) };
  }
}

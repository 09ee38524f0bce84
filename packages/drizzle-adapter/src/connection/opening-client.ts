import type pg from 'pg';

import { ClosingClient, streamOf } from './client.js';

/** What a new connection fails with when it was not ready in time: the server did not say enough. */
class UnansweredConnectionError extends Error {
  override readonly name: string = 'UnansweredConnectionError';

  constructor() {
    super('The server did not answer a new connection in time');
  }
}

/** What such a client is made with. */
export interface OpeningClientConfig extends pg.ClientConfig {
  /** Where to connect and as whom; asked for each client, because files of certificates are renewed. */
  readonly address?: () => pg.ClientConfig;
}

/** Whether an error of a pool is, or was caused by, a connection that was not answered in time. */
export function isUnanswered(error: unknown): boolean {
  // The pool's own deadline may pass before the connection has ended, and then gives the error another text.
  const { cause } = error instanceof Error ? error : {};
  return error instanceof UnansweredConnectionError || cause instanceof UnansweredConnectionError;
}

/**
 * A client of a pool, with one deadline for its login and its preparation, `connectionTimeoutMillis` after it was made: then
 * its connection is destroyed.
 *
 * The pool alone would wait for the login only, and a server that takes it may still say nothing afterwards.
 */
export class OpeningClient extends ClosingClient {
  readonly #queryTimeoutMs: number | undefined;
  readonly #deadlines: NodeJS.Timeout[] = [];
  /** Why it is not known where to connect. */
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
      // The pool forgets the client, while the server may wait for the rest of its login.
      if (error !== null) streamOf(this).destroy();
      callback(error && this.#reasonOf(error));
    };
    // The pool would not catch it where the client is made.
    if (this.#failure !== undefined) process.nextTick(done, this.#failure);
    else super.connect(done);
  }

  /**
   * Does what makes a connection ready after its login; from then on there is no deadline.
   *
   * Throws what {@link isUnanswered} knows when the deadline passes, or when a statement takes as long as any may
   */
  async prepare(work: () => Promise<void>): Promise<void> {
    // Before those of the statements, so that this one comes first.
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

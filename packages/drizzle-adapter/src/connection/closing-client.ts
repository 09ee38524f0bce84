import pg from 'pg';
import { BatchingSocket } from './batching-socket.js';

/** How long the server has to close a connection whose client has said goodbye, in milliseconds. */
const goodbyeMaxMs = 1_000;

/**
 * A client whose `end()` does not wait for a network that has fallen silent: a connection that the server has not closed in
 * time is destroyed.
 */
export class ClosingClient extends pg.Client {
  constructor(config: pg.ClientConfig) {
    super({ ...config, stream: () => new BatchingSocket() });
  }

  override end(): Promise<void>;
  override end(callback: (error: Error) => void): void;
  override end(callback?: (error: Error) => void): Promise<void> | void {
    if (this.#awaitsAnswers()) this.once('drain', () => this.#destroySoon());
    else this.#destroySoon();
    if (callback === undefined) return super.end();
    super.end(callback);
  }

  /** Whether it says goodbye after the answers to what it has sent, which have deadlines of their own. */
  #awaitsAnswers(): boolean {
    // Undefined until the login is over.
    const { readyForQuery } = this as this & { readonly readyForQuery: boolean | undefined };
    return this.pipeline && readyForQuery === false;
  }

  #destroySoon(): void {
    const deadline = setTimeout(() => this.connection.stream.destroy(), goodbyeMaxMs).unref();
    this.once('end', () => clearTimeout(deadline));
  }
}

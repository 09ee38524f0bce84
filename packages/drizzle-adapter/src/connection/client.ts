import { outsideRequests } from '@framework/core/adapter';
import dns from 'node:dns';
import { type LookupFunction, Socket, type SocketConnectOpts } from 'node:net';
import pg from 'pg';

type Answer = Parameters<Parameters<LookupFunction>[2]>;

/** Who waits for the lookups that are under way, by what these ask. */
const waiting = new Map<string, ((...answer: Answer) => void)[]>();

/**
 * Looks a name up as Node does, but never twice at once: whoever asks meanwhile gets the same answer.
 *
 * A lookup occupies one of the four threads that Node has for it until the name server answers, however long ago its asker gave
 * up. A name server that is silent would get all of them, and other names could not be looked up any more.
 */
const sharedLookup: LookupFunction = (hostname, options, callback) => {
  const question = JSON.stringify([hostname, options]);
  const others = waiting.get(question);
  if (others !== undefined) {
    others.push(callback);
    return;
  }
  const askers = [callback];
  waiting.set(question, askers);
  dns.lookup(hostname, options, (...answer: Answer) => {
    waiting.delete(question);
    for (const asker of askers) asker(...answer);
  });
};

/**
 * Sends what is written within one turn of the event loop by one call of the operating system, and looks names up by
 * {@link sharedLookup}.
 *
 * Waking the server costs more than writing a statement does; statements that are sent together wake it once.
 *
 * What comes in runs outside the async context of any request, because the connection outlives the request that needed it
 * first.
 */
export class BatchingSocket extends Socket {
  #isHeld = false;

  /** Takes what {@link Socket.connect} takes. */
  override connect(...args: unknown[]): this {
    const [port, host] = args;
    const isNamed = typeof port === 'number' && typeof host === 'string';
    const target = isNamed ? [{ port, host, lookup: sharedLookup }] : args;
    return outsideRequests(() => super.connect(...(target as [SocketConnectOpts])));
  }

  /** Called before the parts of each statement are written. */
  override cork(): void {
    super.cork();
    if (this.#isHeld) return;
    this.#isHeld = true;
    super.cork();
    process.nextTick(() => {
      this.#isHeld = false;
      this.uncork();
    });
  }
}

/** The socket, which `pg` offers to its own pool only: `end()` would wait for a network that is silent. */
export function streamOf(client: pg.Client): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

/** Whether a statement was sent that the server has not answered yet. */
export function awaitsAnswer(client: pg.Client): boolean {
  return !(client as pg.Client & { readonly readyForQuery: boolean }).readyForQuery;
}

/** Whether a pooler stands between: the session is another one than the one that was announced. */
export async function isBehindPooler(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid !== (client as pg.Client & { readonly processID: number }).processID;
}

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

/** Looks at the server and the database behind each new connection before it is used. */
export interface ConnectionGuard {
  /**
   * To be called outside of a transaction.
   *
   * @throws what is wrong; then the connection must not be used
   */
  ensure(client: pg.ClientBase): Promise<void>;
}

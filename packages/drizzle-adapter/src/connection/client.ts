import { outsideRequests } from '@framework/core/adapter';
import dns from 'node:dns';
import type { EventEmitter } from 'node:events';
import { type LookupFunction, Socket, type SocketConnectOpts } from 'node:net';
import pg from 'pg';

type Answer = Parameters<Parameters<LookupFunction>[2]>;

/** The callers that wait for lookups in progress, by question. */
const waiting = new Map<string, ((...answer: Answer) => void)[]>();

/**
 * Looks a name up as Node does, but never the same one twice at once: callers share the lookup in progress.
 *
 * A lookup occupies one of Node's four worker threads until the name server answers, even if its caller has given up.
 * Without sharing, one silent name server would occupy all of them and block the lookups of other names.
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
 * Looks names up with {@link sharedLookup}, and handles incoming data outside of any request's async context, because the
 * connection outlives the request that opened it.
 */
export class DatabaseSocket extends Socket {
  /** Takes the arguments of {@link Socket.connect}. */
  override connect(...args: unknown[]): this {
    const [port, host] = args;
    const isNamed = typeof port === 'number' && typeof host === 'string';
    const target = isNamed ? [{ port, host, lookup: sharedLookup }] : args;
    return outsideRequests(() => super.connect(...(target as [SocketConnectOpts])));
  }
}

/**
 * The client's socket, which `pg` gives only to its own pool. Destroying it does not wait for a silent network, as `end()` would.
 */
export function streamOf(client: pg.Client): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

/** Whether the client has lost its connection. What it has sent may still arrive at the server. */
export function isDisconnected(client: pg.Client): boolean {
  return streamOf(client).destroyed;
}

/** The function of the server that waits for standbys; unlike its warning, its name is not translated. */
const waitForStandbys = 'SyncRepWaitForLSN';

/** A statement was committed on its server, but its wait for the synchronous standbys was cancelled, so a failover may lose it. */
class UnreplicatedCommitError extends Error {
  override readonly name: string = 'UnreplicatedCommitError';
}

/**
 * Rejects each statement whose commit stops waiting for the synchronous standbys, which the server reports as a success with a
 * warning. The connection must not be used afterwards.
 */
export function rejectUnreplicated(client: pg.ClientBase): void {
  const { connection } = client as unknown as { readonly connection: EventEmitter };
  client.on('notice', ({ routine, message }) => {
    if (routine === waitForStandbys) connection.emit('errorMessage', new UnreplicatedCommitError(message));
  });
}

/** Whether the server still owes an answer to a statement. */
export function awaitsAnswer(client: pg.Client): boolean {
  return !(client as pg.Client & { readonly readyForQuery: boolean }).readyForQuery;
}

/** Whether a pooler stands in between: the server process is not the one announced at login. */
export async function isBehindPooler(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid !== (client as pg.Client & { readonly processID: number }).processID;
}

/** How long the server may take to close a connection after the client has said goodbye, in milliseconds. */
const goodbyeMaxMs = 1_000;

/**
 * A client whose `end()` does not wait for a silent network: if the server does not close the connection in time, it is
 * destroyed.
 */
export class ClosingClient extends pg.Client {
  constructor(config: pg.ClientConfig) {
    super({ ...config, stream: () => new DatabaseSocket() });
  }

  /** Sends the server a goodbye, and resolves when the connection is closed. */
  override end(): Promise<void>;
  /** Sends the server a goodbye, and calls back when the connection is closed. */
  override end(callback: (error: Error) => void): void;
  override end(callback?: (error: Error) => void): Promise<void> | void {
    if (this.#awaitsAnswers()) this.once('drain', () => this.#destroySoon());
    else this.#destroySoon();
    if (callback === undefined) return super.end();
    super.end(callback);
  }

  /** Whether the goodbye must wait for answers to sent statements, which have their own deadlines. */
  #awaitsAnswers(): boolean {
    // Undefined until the login has finished.
    const { readyForQuery } = this as this & { readonly readyForQuery: boolean | undefined };
    return this.pipeline && readyForQuery === false;
  }

  #destroySoon(): void {
    const deadline = setTimeout(() => this.connection.stream.destroy(), goodbyeMaxMs).unref();
    this.once('end', () => clearTimeout(deadline));
  }
}

/** Checks the server and the database behind each new connection before it is used. */
export interface ConnectionGuard {
  /**
   * Must be called outside of a transaction.
   *
   * @throws an error when the connection must not be used
   */
  ensure(client: pg.ClientBase): Promise<void>;
}

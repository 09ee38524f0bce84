import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import type { InvalidRequestError } from '../request/invalid-request-error.js';
import type { RequestBody } from '../request/request-body.js';
import { answerText } from './refused-connection.js';

/**
 * How many requests may wait behind the one being served, and how many bytes may have arrived since that one was begun. A connection with
 * more is closed, because Node parses all that arrives.
 */
const waitingMax = 16;
const waitingBytesMax = 131_072;
/** The longest pause after a refused request, in milliseconds. */
const pauseMsMax = 1_000;
/** How long a client may take to read the last answer of its connection, in milliseconds. */
const readTimeoutMs = 2_000;

/** A request whose headers have been read, and its answer. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: RequestBody;
  /** The reason for which the request is refused, whatever its path. */
  readonly fault: InvalidRequestError | undefined;
}

/**
 * The requests of a connection, which are served one after the other: Node parses each request that arrives, and HTTP allows only safe ones
 * to be served at the same time.
 */
export class RequestQueue {
  readonly #socket: Socket;
  readonly #serve: (exchange: Exchange) => void;
  readonly #refusal: (fault: InvalidRequestError) => Response;
  /** The request being served, and those that wait behind it. */
  readonly #exchanges: Exchange[] = [];
  /** The last request whose headers were read, answered or not. */
  #latest: IncomingMessage | undefined;
  /** How many bytes had arrived when the request being served was begun. */
  #bytesReadBefore = 0;
  #isEnding = false;
  #pausedUntilMs = -Infinity;

  /** @param refusal answers input that never becomes a request */
  constructor(
    socket: Socket,
    serve: (exchange: Exchange) => void,
    refusal: (fault: InvalidRequestError) => Response,
  ) {
    this.#socket = socket;
    this.#serve = serve;
    this.#refusal = refusal;
  }

  /** Serves a request once all requests before it are answered. */
  add(exchange: Exchange): void {
    if (this.#isEnding) return;
    const { length } = this.#exchanges;
    // The body of the request being served has arrived, and is not what waits.
    if (length === 1) this.#bytesReadBefore = this.#socket.bytesRead;
    const bytes = this.#socket.bytesRead - this.#bytesReadBefore;
    if (length > waitingMax || (length > 0 && bytes > waitingBytesMax)) return void this.#socket.destroy();
    this.#latest = exchange.request;
    if (this.#exchanges.push(exchange) === 1) this.#next();
  }

  /** Serves no further request for this long, up to a second: a client that repeats refused requests at once costs little. */
  pause(durationMs: number): void {
    this.#pausedUntilMs = performance.now() + Math.min(durationMs, pauseMsMax);
  }

  /**
   * Ends the connection once everything that has arrived as a request is answered. If the last request is incomplete, or there is none, its
   * answer is the fault.
   */
  refuse(fault: InvalidRequestError): void {
    // Node reports the fault again with all that the client goes on sending.
    if (this.#isEnding) return;
    this.#isEnding = true;
    const last = this.#exchanges.at(-1);
    if (last === undefined) {
      // The input is the rest of a request that has its answer.
      if (this.#latest?.complete === false) this.#socket.destroy();
      else void this.#end(this.#refusal(fault));
      return;
    }
    const { request, response, body } = last;
    if (request.complete && !response.headersSent) return void response.setHeader('connection', 'close');
    // With that header, Node would close the connection while the client is still sending, and the answer could be lost.
    if (!request.complete) body.fail(fault);
    const refusal = request.complete ? this.#refusal(fault) : undefined;
    response.once('close', () => void this.#end(refusal));
  }

  /** Ends the connection once the current request is answered, and does not wait for a client that leaves its answer unread. */
  stop(fault: InvalidRequestError): void {
    this.#exchanges.splice(1);
    const [running] = this.#exchanges;
    if (running === undefined && this.#socket.bytesRead === 0) return void this.#socket.destroy();
    this.refuse(fault);
    if (running === undefined || running.response.writableEnded) this.#destroyLater();
    else running.response.once('prefinish', () => this.#destroyLater());
  }

  /** Ends a connection without traffic, unless its client waits for the answer to a request: that has deadlines of its own. */
  timeOut(): void {
    if (this.#exchanges.length === 0 || this.#socket.writableLength > 0) this.#socket.destroy();
  }

  /** Serves the first request. If the connection has ended meanwhile, no client waits for an answer. */
  #next(): void {
    const [exchange] = this.#exchanges;
    if (exchange === undefined || !this.#socket.writable) return;
    const pauseMs = this.#pausedUntilMs - performance.now();
    if (pauseMs > 0) return void setTimeout(() => this.#next(), pauseMs);
    this.#bytesReadBefore = this.#socket.bytesRead;
    exchange.response.once('close', () => {
      this.#exchanges.shift();
      // Other connections have their turn in between.
      if (this.#exchanges.length > 0) setImmediate(() => this.#next());
    });
    this.#serve(exchange);
  }

  async #end(refusal: Response | undefined): Promise<void> {
    if (refusal !== undefined) {
      const text = await answerText(refusal);
      if (this.#socket.writable) this.#socket.write(text);
    }
    // Node reads and drops what the client is still sending: closing at once could lose the answer.
    this.#socket.end();
    this.#destroyLater();
  }

  #destroyLater(): void {
    setTimeout(() => this.#socket.destroy(), readTimeoutMs).unref();
  }
}

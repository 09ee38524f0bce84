import { InvalidRequestError, RequestBody } from '@framework/http';
import type { Client } from '@framework/http/security';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import { type HeaderLimits, answerText, headersTooLarge, requestTimedOut } from './refused-connection.js';
import { RequestDeadline, type RequestTimeLimits } from './request-deadline.js';

/** The limits for a connection and its requests. */
export interface ConnectionLimits extends HeaderLimits, RequestTimeLimits {
  /** The maximum number of bytes in a body. */
  readonly bodyBytesMax: number;
  /** How many parsed requests may wait behind the one being served; each takes about 2 KiB of memory. */
  readonly pipelinedRequestsMax: number;
}

/** A body in small chunks takes several times its own size on the wire; this is how many times it may take. */
const wireFactorMax = 16;
/** How many chunks a body may have: each takes some hundred bytes of memory and some microseconds, however short it is. */
const chunksMax = 1_000;
/** A request has at least this many bytes. What is parsed at once is limited, so that only a limited number of requests can wait. */
const requestBytesMin = 18;
/** The longest pause after a refused request, in milliseconds. */
const pauseMsMax = 1_000;

/**
 * After the last answer, the rest of what a client sends is read and dropped for this long, up to this many bytes.
 * Closing at once would reset the connection, and the client could lose the answer.
 */
const lingerMs = 2_000;
const lingerBytesMax = 1_048_576;
const lingerCheckMs = 50;

/** A request whose headers have been read, and its answer. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: RequestBody;
  /** Why the request is refused, whatever it asks for. */
  readonly fault: InvalidRequestError | undefined;
  /** The client or the proxy at the other end of the connection. */
  readonly peer: Client;
  /**
   * Reads no further request for this long after the answer, up to a second: a client that repeats refused requests at once costs
   * little. Does nothing if the limits per address do not apply to the connection: others may use it, too.
   */
  readonly pause: (durationMs: number) => void;
}

/** Answers the requests of a connection. */
export interface ExchangeHandler {
  readonly serve: (exchange: Exchange) => void;
  /** Answers input that never becomes a request. */
  readonly refuse: (error: unknown) => Response;
}

/**
 * A client's connection. It serves requests one after the other, and ends only after the last one is answered.
 *
 * Requests that arrive early wait, and nothing more is parsed or read meanwhile. The unparsed bytes come from a single
 * read of at most 64 KiB.
 */
export class HttpConnection {
  readonly #socket: Socket;
  readonly #handler: ExchangeHandler;
  readonly #resumeReading: () => Socket;
  readonly #parse: (bytes: Buffer) => void;
  readonly #waiting: Exchange[] = [];
  readonly #deadline: RequestDeadline;
  readonly #limits: ConnectionLimits;
  readonly #peer: Client;
  #pausedUntilMs = -Infinity;
  #running: Exchange | undefined;
  /** The last request whose headers were read, answered or not. */
  #latest: IncomingMessage | undefined;
  /** How many bytes of the current headers or body have been read. */
  #bytesRead = 0;
  #isReadingBody = false;
  /** How many chunks of the current body have been parsed. */
  #chunks = 0;
  /** Whether the next part of a body may be the rest of a chunk that has been counted. */
  #isRest = false;
  /** Bytes that were read and are not parsed yet. */
  #unparsed: Buffer = Buffer.alloc(0);
  /** Called once everything read has been parsed; set when the client has ended its half of the connection. */
  #onParsed: (() => void) | undefined;
  #isParsing = false;
  #isHeld = false;
  /** The final answer, for input that never became a request. */
  #refusal: Response | undefined;
  /** Whether no further requests are served. */
  #isEnding = false;
  #isLingering = false;

  /** @param options.peer the client or the proxy at the other end */
  constructor(
    socket: Socket,
    handler: ExchangeHandler,
    { limits, peer }: { readonly limits: ConnectionLimits; readonly peer: Client },
  ) {
    this.#socket = socket;
    this.#handler = handler;
    this.#limits = limits;
    this.#peer = peer;
    const isReading = (): boolean => !socket.isPaused();
    this.#deadline = new RequestDeadline(limits, isReading, () => this.refuse(requestTimedOut()));
    socket.once('close', () => this.#deadline.end());
    // Node's server resumes reading after every request, and destroys the connection right after the last answer.
    this.#resumeReading = socket.resume.bind(socket);
    socket.resume = () => (this.#isHeld ? socket : this.#resume());
    socket.destroySoon = () => this.#linger();
    // Node's server stops listening for errors after the first one.
    socket.on('error', () => undefined);
    // Node's server would parse everything from one read, including requests that must wait for earlier answers.
    this.#parse = takeListener(socket, 'data');
    const end = takeListener(socket, 'end');
    socket.on('data', (chunk: Buffer) => {
      this.#unparsed = this.#unparsed.length === 0 ? chunk : Buffer.concat([this.#unparsed, chunk]);
      this.#parseOn();
    });
    socket.on('end', () => {
      this.#onParsed = end;
      this.#parseOn();
    });
  }

  /**
   * Serves a request as soon as all requests before it are answered.
   *
   * @param options.onRead called when the body is requested
   */
  add(
    request: IncomingMessage,
    response: ServerResponse,
    options: { readonly fault?: InvalidRequestError | undefined; readonly onRead?: () => void } = {},
  ): void {
    if (this.#isEnding) return;
    this.#latest = request;
    this.#deadline.headersRead(request);
    this.#bytesRead = 0;
    this.#countChunks(request);
    const body = new RequestBody(request, this.#limits.bodyBytesMax, options.onRead);
    const pause = (durationMs: number): void => this.#pause(durationMs);
    const exchange = { request, response, body, fault: options.fault, peer: this.#peer, pause };
    if (this.#running === undefined) return this.#run(exchange);
    this.#waiting.push(exchange);
    this.#hold();
  }

  /** Refuses the request being read once the client's time for it is over. Node's server has reported it as late. */
  watchDeadline(): void {
    this.#deadline.watch(this.#latest);
  }

  /**
   * Ends the connection once everything parsed is answered. If the last request is incomplete, or there is none, the
   * client is told why.
   */
  refuse(fault: InvalidRequestError): void {
    if (this.#isEnding) return;
    const last = this.#waiting.at(-1) ?? this.#running;
    if (last === undefined) return void this.#answer(fault);
    if (!last.request.complete) last.body.fail(fault);
    else {
      const refusal = this.#handler.refuse(fault);
      // The last answer announces the end of the connection, unless its headers have been sent already.
      if (last.response.headersSent) this.#refusal = refusal;
    }
    this.#endAfter(last);
  }

  /**
   * Ends the connection once the current request is answered. If that request is incomplete, the client is told why.
   */
  stop(fault: InvalidRequestError): void {
    const running = this.#running;
    if (running === undefined) {
      if (this.#socket.bytesRead === 0) this.#socket.destroy();
      else if (this.#isEnding) this.#destroyLater();
      else void this.#answer(fault);
      return;
    }
    this.#waiting.length = 0;
    if (!running.request.complete) running.body.fail(fault);
    this.#endAfter(running);
    // Does not wait for a client that does not read its answer.
    if (running.response.writableEnded) this.#destroyLater();
    else running.response.once('prefinish', () => this.#destroyLater());
  }

  /**
   * Ends a connection whose client has sent nothing, and read no byte of an answer, for the time allowed. A request
   * being served has deadlines of its own.
   */
  timeOut(): void {
    const isServing = this.#running !== undefined && !this.#running.response.writableEnded;
    if (!isServing || this.#socket.writableLength > 0) this.#socket.destroy();
  }

  #resume(): Socket {
    const wasPaused = this.#socket.isPaused();
    this.#resumeReading();
    this.#parseOn();
    if (wasPaused) this.#deadline.resumed();
    return this.#socket;
  }

  /** Parses what was read until requests are waiting or a body's buffer is full. */
  #parseOn(): void {
    // Node's server also calls resume while it parses.
    if (this.#isParsing) return;
    this.#isParsing = true;
    while (this.#unparsed.length > 0 && (this.#isEnding || !this.#socket.isPaused())) {
      const bytes = this.#unparsed.subarray(0, this.#limits.pipelinedRequestsMax * requestBytesMin);
      this.#unparsed = this.#unparsed.subarray(bytes.length);
      this.#count(bytes.length);
      this.#isRest = true;
      // No further requests are served, and Node may already have given the parser to another connection.
      if (!this.#isEnding) this.#parse(bytes);
    }
    this.#isParsing = false;
    if (this.#unparsed.length > 0) return;
    this.#onParsed?.();
    this.#onParsed = undefined;
  }

  /** Node's parser does not count all bytes, such as spaces before a value or zeros before a chunk size. */
  #count(bytes: number): void {
    const isReadingBody = this.#latest?.complete === false;
    if (isReadingBody !== this.#isReadingBody) {
      this.#isReadingBody = isReadingBody;
      this.#bytesRead = 0;
    }
    const wireBytesMax = this.#limits.bodyBytesMax * wireFactorMax;
    // One read may contain the ends of several requests, so the limit applies only to bytes from earlier reads.
    if (this.#bytesRead > (isReadingBody ? wireBytesMax : this.#limits.headersBytesMax)) {
      this.refuse(
        isReadingBody
          ? new InvalidRequestError(
              'body-too-large',
              `The body takes more than ${wireBytesMax} bytes on the wire`,
            )
          : headersTooLarge(this.#limits),
      );
    }
    this.#bytesRead += bytes;
  }

  /** Node's parser pushes each chunk, and does not count them. Once the request is answered, it drops them itself. */
  #countChunks(request: IncomingMessage): void {
    this.#chunks = 0;
    const push = request.push.bind(request);
    request.push = (part, encoding) => {
      if (part !== null && !this.#isRest) this.#chunks++;
      this.#isRest = false;
      if (this.#chunks > chunksMax) {
        this.refuse(
          new InvalidRequestError('body-too-large', `The body may have at most ${chunksMax} chunks`),
        );
      }
      return push(part, encoding);
    };
  }

  #run(exchange: Exchange): void {
    this.#running = exchange;
    if (this.#isLingering || this.#socket.destroyed) return;
    const { request, response, body, fault } = exchange;
    response.once('close', () => this.#answered());
    // Nobody will read an oversized body. When a requested upgrade is not made, Node's parser hides later errors.
    const isLast = body.isTooLarge || request.headers.upgrade !== undefined;
    if (isLast) response.setHeader('connection', 'close');
    // A proxy may have read it otherwise, and not know what follows as a request.
    if (fault !== undefined) {
      this.#waiting.length = 0;
      this.#endAfter(exchange);
    }
    this.#handler.serve(exchange);
  }

  #answered(): void {
    const next = this.#waiting.shift();
    this.#running = next;
    if (this.#isLingering || this.#socket.destroyed) return;
    if (this.#isEnding && next === undefined) return void this.#end();
    const pauseMs = this.#isEnding ? 0 : this.#pausedUntilMs - performance.now();
    if (pauseMs > 0) {
      this.#hold();
      setTimeout(() => this.#proceed(next), pauseMs);
    } else if (next === undefined) {
      this.#release();
    } else {
      // Gives other connections a chance to run in between.
      setImmediate(() => this.#proceed(next));
    }
  }

  #proceed(next: Exchange | undefined): void {
    if (this.#waiting.length === 0) this.#release();
    if (next !== undefined) this.#run(next);
  }

  #pause(durationMs: number): void {
    if (this.#peer.isLimited) this.#pausedUntilMs = performance.now() + Math.min(durationMs, pauseMsMax);
  }

  #hold(): void {
    this.#isHeld = true;
    this.#socket.pause();
  }

  #release(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.#resume();
  }

  #endAfter({ response }: Exchange): void {
    this.#isEnding = true;
    if (!response.headersSent) response.setHeader('connection', 'close');
  }

  /** Answers input that never became a request, when no other answer is outstanding. */
  async #answer(fault: InvalidRequestError): Promise<void> {
    this.#isEnding = true;
    // The input is the rest of a request that already has its answer.
    if (this.#latest?.complete === false) return this.#linger();
    this.#refusal = this.#handler.refuse(fault);
    await this.#end();
  }

  async #end(): Promise<void> {
    const text = this.#refusal && (await answerText(this.#refusal));
    if (text !== undefined && this.#socket.writable) this.#socket.write(text);
    this.#linger();
  }

  #linger(): void {
    if (this.#isLingering) return;
    this.#isEnding = true;
    this.#isLingering = true;
    this.#waiting.length = 0;
    this.#release();
    this.#latest?.resume();
    const socket = this.#socket;
    socket.end(() => {
      if (socket.destroyed) return;
      const untilMs = performance.now() + lingerMs;
      const untilBytes = socket.bytesRead + lingerBytesMax;
      const timer = setInterval(() => {
        if (performance.now() > untilMs || socket.bytesRead > untilBytes) socket.destroy();
      }, lingerCheckMs);
      socket.once('close', () => clearInterval(timer));
    });
  }

  #destroyLater(): void {
    setTimeout(() => this.#socket.destroy(), lingerMs).unref();
  }
}

/** Removes the listener of Node's server from a new connection, and returns a function that calls it. */
function takeListener(socket: Socket, event: 'data' | 'end'): (...values: readonly unknown[]) => void {
  const listeners = socket.listeners(event);
  socket.removeAllListeners(event);
  return (...values) => {
    for (const listener of listeners) Reflect.apply(listener, socket, values);
  };
}

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import { InvalidRequestError } from './parse-shape.js';
import { answerText, headersBytesMax, headersTooLarge, requestTimedOut } from './refused-connection.js';
import { RequestBody } from './request-body.js';
import { RequestDeadline, type RequestTimeLimits } from './request-deadline.js';

/** How many bytes a body may take on the wire. A body in small chunks takes several times its own size. */
const wireBytesMax = 1_048_576;

/**
 * How many bytes are parsed at once. A request has at least 18 bytes, and takes about 2 KiB of memory when it is parsed. So
 * this limits how many parsed requests can wait behind the one being served.
 */
const parsedBytesMax = 1_024;

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
  #running: Exchange | undefined;
  /** The last request whose headers were read, answered or not. */
  #latest: IncomingMessage | undefined;
  /** How many bytes of the current headers or body have been read. */
  #bytesRead = 0;
  #isReadingBody = false;
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

  constructor(socket: Socket, handler: ExchangeHandler, limits: RequestTimeLimits) {
    this.#socket = socket;
    this.#handler = handler;
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
    const body = new RequestBody(request, options.onRead);
    const exchange = { request, response, body, fault: options.fault };
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
      const bytes = this.#unparsed.subarray(0, parsedBytesMax);
      this.#unparsed = this.#unparsed.subarray(bytes.length);
      this.#count(bytes.length);
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
    // One read may contain the ends of several requests, so the limit applies only to bytes from earlier reads.
    if (this.#bytesRead > (isReadingBody ? wireBytesMax : headersBytesMax)) {
      this.refuse(
        isReadingBody
          ? new InvalidRequestError(
              'body-too-large',
              `The body takes more than ${wireBytesMax} bytes on the wire`,
            )
          : headersTooLarge(),
      );
    }
    this.#bytesRead += bytes;
  }

  #run(exchange: Exchange): void {
    this.#running = exchange;
    if (this.#isLingering || this.#socket.destroyed) return;
    const { request, response, body, fault } = exchange;
    response.once('close', () => this.#answered());
    // Nobody will read an oversized body. When a requested upgrade is not made, Node's parser hides later errors.
    const isLast = body.isTooLarge || request.headers.upgrade !== undefined;
    if (isLast || fault?.code === 'headers-too-large') response.setHeader('connection', 'close');
    this.#handler.serve(exchange);
  }

  #answered(): void {
    const next = this.#waiting.shift();
    this.#running = next;
    if (this.#isLingering || this.#socket.destroyed) return;
    if (this.#isEnding && next === undefined) return void this.#end();
    if (this.#waiting.length === 0) this.#release();
    // Gives other connections a chance to run in between.
    if (next !== undefined) setImmediate(() => this.#run(next));
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

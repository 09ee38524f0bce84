import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

import { InvalidRequestError } from './parse-shape.js';
import { answerText, headersBytesMax, headersTooLarge, requestTimedOut } from './refused-connection.js';
import { RequestBody } from './request-body.js';
import { RequestDeadline, type RequestTimeLimits } from './request-deadline.js';

/** How many bytes a body may take on the wire: in small chunks, several times its own. */
const wireBytesMax = 1_048_576;

/**
 * How much is parsed at once. Each request that was parsed costs some 2 KiB of memory, and the smallest has 18 bytes: so
 * many more than the one that is served may wait.
 */
const parsedBytesMax = 1_024;

/**
 * For how long, and of how many bytes, what a client still sends after the last answer is read and dropped: closing at
 * once would reset the connection, and take the answer from the client.
 */
const lingerMs = 2_000;
const lingerBytesMax = 1_048_576;
const lingerCheckMs = 50;

/** A request of which at least the headers were read, and its answer. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: RequestBody;
  /** Why it is refused, whatever it asks for. */
  readonly fault: InvalidRequestError | undefined;
}

/** Answers the requests of a connection. */
export interface ExchangeHandler {
  readonly serve: (exchange: Exchange) => void;
  /** Answers what never becomes a request. */
  readonly refuse: (error: unknown) => Response;
}

/**
 * A client's connection: serves its requests one after the other, and ends only after the answer to the last one.
 *
 * Requests that arrive before the ones before them are answered wait, and while they do, nothing more is parsed or read.
 * What has arrived and is not parsed is of one read, of at most 64 KiB.
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
  /** What was read of the headers, or of the body, that are being read now. */
  #bytesRead = 0;
  #isReadingBody = false;
  /** What was read, and is not parsed yet. */
  #unparsed: Buffer = Buffer.alloc(0);
  /** What is to happen when all that was read is parsed: the client has ended its side. */
  #onParsed: (() => void) | undefined;
  #isParsing = false;
  #isHeld = false;
  /** What is answered last to what is no request. */
  #refusal: Response | undefined;
  /** Whether no further request is served. */
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
    // Node's server would parse all that one read has brought, with requests that nobody has taken an answer to.
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
   * Serves a request as soon as those before it are answered.
   *
   * @param options.onRead called when its body is asked for
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

  /** Refuses the request that is being read as soon as the client has had its time for it, which Node's server says is over. */
  watchDeadline(): void {
    this.#deadline.watch(this.#latest);
  }

  /** Ends when everything that was parsed is answered. A request that was not read to its end, or none, is told why. */
  refuse(fault: InvalidRequestError): void {
    if (this.#isEnding) return;
    const last = this.#waiting.at(-1) ?? this.#running;
    if (last === undefined) return void this.#answer(fault);
    if (!last.request.complete) last.body.fail(fault);
    else {
      const refusal = this.#handler.refuse(fault);
      // The last answer says that nothing comes after it, unless it has begun already.
      if (last.response.headersSent) this.#refusal = refusal;
    }
    this.#endAfter(last);
  }

  /** Ends when the request that is being served is answered. One that has not arrived is told why. */
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
    // A client that does not take its answer is not waited for.
    if (running.response.writableEnded) this.#destroyLater();
    else running.response.once('prefinish', () => this.#destroyLater());
  }

  /**
   * Ends the connection when nothing has been received, and no byte of an answer taken, for as long as a client may take for
   * that. A request that is being served has deadlines of its own.
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

  /** Parses what was read, until requests wait, or a body has no place. */
  #parseOn(): void {
    // Node's server resumes while it parses, too.
    if (this.#isParsing) return;
    this.#isParsing = true;
    while (this.#unparsed.length > 0 && (this.#isEnding || !this.#socket.isPaused())) {
      const bytes = this.#unparsed.subarray(0, parsedBytesMax);
      this.#unparsed = this.#unparsed.subarray(bytes.length);
      this.#count(bytes.length);
      // No further request is served; and Node may have given the parser to another connection.
      if (!this.#isEnding) this.#parse(bytes);
    }
    this.#isParsing = false;
    if (this.#unparsed.length > 0) return;
    this.#onParsed?.();
    this.#onParsed = undefined;
  }

  /** Node's parser does not count everything, such as spaces before a value and zeros before the size of a chunk. */
  #count(bytes: number): void {
    const isReadingBody = this.#latest?.complete === false;
    if (isReadingBody !== this.#isReadingBody) {
      this.#isReadingBody = isReadingBody;
      this.#bytesRead = 0;
    }
    // One read can have the ends of several requests, so only earlier ones are known to be all of the same.
    if (this.#bytesRead > (isReadingBody ? wireBytesMax : headersBytesMax)) {
      this.refuse(
        isReadingBody
          ? new InvalidRequestError('body-too-large', `The body takes more than ${wireBytesMax} bytes`)
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
    // Nobody will read such a body; and after an upgrade that did not take place, Node's parser hides errors.
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
    // The other connections have their turn in between.
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

  /** Answers what is no request, when nothing else is to be answered. */
  async #answer(fault: InvalidRequestError): Promise<void> {
    this.#isEnding = true;
    // The rest of a request that has its answer already.
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

/** Takes the listener of Node's server off a new connection, to be called in its place. */
function takeListener(socket: Socket, event: 'data' | 'end'): (...values: readonly unknown[]) => void {
  const listeners = socket.listeners(event);
  socket.removeAllListeners(event);
  return (...values) => {
    for (const listener of listeners) Reflect.apply(listener, socket, values);
  };
}

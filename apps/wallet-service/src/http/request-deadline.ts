import type { Context } from 'hono';
import type { IncomingMessage } from 'node:http';
import type { Logger } from 'pino';

import { errorReason, errorStack } from '../process/service-logger.js';
import type { Problem } from './problem-of.js';
import type { WalletEnv } from './wallet-app-env.js';

/** How long a client may take to send the headers of a request, and the whole of it. */
export interface RequestTimeLimits {
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

/**
 * The deadline of a request that is late according to Node's server, which also counts the time in which the service read
 * nothing from the connection: the limits begin again when reading does.
 */
export class RequestDeadline {
  readonly #limits: RequestTimeLimits;
  readonly #isReading: () => boolean;
  readonly #onMissed: () => void;
  /** The late request; `awaited` until its headers have been read. */
  #late: IncomingMessage | 'awaited' | undefined;
  #resumedAtMs = -Infinity;
  #timer: NodeJS.Timeout | undefined;

  /** @param onMissed called when the client has had its time and the request is still not complete */
  constructor(limits: RequestTimeLimits, isReading: () => boolean, onMissed: () => void) {
    this.#limits = limits;
    this.#isReading = isReading;
    this.#onMissed = onMissed;
  }

  /** Begins to watch the request that is being read. Node's server reports each request once at most. */
  watch(latest: IncomingMessage | undefined): void {
    this.#late = latest?.complete === false ? latest : 'awaited';
    this.#check();
  }

  /** Says that the headers of a request have been read. */
  headersRead(request: IncomingMessage): void {
    if (this.#late === 'awaited') this.#late = request;
  }

  /** Says that reading begins again after a pause. */
  resumed(): void {
    this.#resumedAtMs = performance.now();
    if (this.#late !== undefined) this.#check();
  }

  /** Watches nothing any more. */
  end(): void {
    this.#late = undefined;
    clearTimeout(this.#timer);
  }

  #check(): void {
    clearTimeout(this.#timer);
    const late = this.#late;
    if (late === undefined || !this.#isReading()) return;
    if (late !== 'awaited' && late.complete) return this.end();
    const { headersTimeoutMs, requestTimeoutMs } = this.#limits;
    const limitMs = late === 'awaited' ? headersTimeoutMs : requestTimeoutMs;
    const leftMs = this.#resumedAtMs + limitMs - performance.now();
    if (leftMs > 0) this.#timer = setTimeout(() => this.#check(), leftMs);
    else this.#onMissed();
  }
}

/** Writes one line per request: never a body, a query or a header. */
export function logRequest(logger: Logger, context: Context<WalletEnv>, tookMs: number): void {
  const { method, path } = context.req;
  const { status } = context.res;
  const requestId = context.get('requestId');
  logger.info({ requestId, method, path, status, durationMs: Math.round(tookMs) }, 'request');
}

/** Writes down what operators need to know of a problem, by the request's id that the client was told. */
export function logProblem(
  logger: Logger,
  { req, var: { requestId } }: Context<WalletEnv>,
  { name, status }: Problem,
  error: unknown,
): void {
  const { method, path } = req;
  if (status === 500) logger.error({ requestId, method, path, stack: errorStack(error) }, 'internal error');
  if (status > 500) logger.warn({ requestId, method, path, reason: errorReason(error) }, name);
}

import ky, { isHTTPError, isKyError } from 'ky';
import createClient, { type Client } from 'openapi-fetch';

import type { components, paths } from './openapi.js';

export type { components, paths } from './openapi.js';

/** A wallet as the service represents it. */
export type Wallet = components['schemas']['Wallet'];
/** A transfer as the service represents it. */
export type Transfer = components['schemas']['Transfer'];
/** Why the service has refused a request (RFC 9457); branch on its `code`. */
export type Problem = components['schemas']['Problem'];

/** How a client reaches the service. */
export interface WalletClientOptions {
  /** Such as `https://wallets.example`; may have a path before the service's own. */
  readonly url: string;
  /** Returns the bearer token of an attempt. Default: requests have none. */
  readonly token?: () => string | Promise<string>;
  /** How often a request is sent at most. Default 6. */
  readonly attemptsMax?: number;
  /** How long an attempt may take, in milliseconds. Default 10,000. */
  readonly attemptTimeoutMs?: number;
  /** How long a request may take with all its attempts and the waits between them, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number;
  /** Sends an attempt. Default: the global `fetch`. */
  readonly fetch?: (request: Request) => Promise<Response>;
}

/**
 * The service has not answered, or the next attempt got no token (`cause`). A write may have taken effect; the same request with the
 * same idempotency key finds out, and takes effect at most once.
 */
export class NoAnswerError extends Error {
  override readonly name = 'NoAnswerError';
  /** The key of the write; `undefined` for a read. */
  readonly idempotencyKey: string | undefined;

  constructor(request: Request, options: ErrorOptions) {
    super(`${request.method} ${request.url} got no answer`, options);
    this.idempotencyKey = request.headers.get(keyHeader) ?? undefined;
  }
}

const keyHeader = 'Idempotency-Key';
/** Conflicts, too many requests, and answers that do not say whether there was an effect. */
const repeatedStatuses = [409, 429, 503, 504];
const backoffMaxMs = 5_000;

/**
 * Creates a client: `GET` and `POST` take the paths of the API with their parameters, and resolve with `data`, or with the
 * service's problem as `error`.
 *
 * A request is repeated, with exponential backoff and jitter, when it gets no complete answer, or 409 `stale-record`, 429, 503
 * or 504. `Retry-After` is followed, unless it is later than `timeoutMs` allows: then the problem is returned at once. Each write
 * has an idempotency key, a new one unless the caller passes one, and so has one effect at most. The header `Idempotency-Key` of the
 * response has it, too: a problem is about the last attempt, and an earlier one may have taken effect.
 *
 * @throws NoAnswerError from the client's methods, when the last attempt was not answered, or got no token
 * @throws the signal's reason from the client's methods, when it is aborted
 * @example apps/wallet-service/test/cut-client.test.ts
 *
 * ```ts
 * const { GET, POST } = walletClient({ url: `http://${proxy.host}:${proxy.port}`, attemptsMax: 30 });
 * ```
 */
export function walletClient(options: WalletClientOptions): Client<paths> {
  return createClient<paths>({
    baseUrl: options.url,
    // The service never redirects, and a token must not follow a redirect.
    redirect: 'error',
    fetch: (request) => repeated(request, options),
  });
}

/** Sends a request until it is answered for good. */
async function repeated(request: Request, options: WalletClientOptions): Promise<Response> {
  const { attemptsMax = 6, attemptTimeoutMs = 10_000, timeoutMs = 60_000 } = options;
  const untilMs = performance.now() + timeoutMs;
  if (request.method === 'POST' && !request.headers.has(keyHeader))
    request.headers.set(keyHeader, crypto.randomUUID());
  const { url, method, headers, redirect, signal } = request;
  const key = headers.get(keyHeader);
  const body = method === 'POST' ? await request.text() : null;
  try {
    // Not the request itself: servers in the same process, such as Hono's, replace the global class of requests.
    const response = await ky(url, {
      method,
      headers,
      redirect,
      signal,
      body,
      fetch: (attempt) => answerTo(attempt as Request, options),
      timeout: attemptTimeoutMs,
      totalTimeout: timeoutMs,
      throwHttpErrors: (status) => repeatedStatuses.includes(status),
      retry: {
        limit: attemptsMax - 1,
        methods: ['get', 'head', 'post'],
        statusCodes: repeatedStatuses,
        afterStatusCodes: repeatedStatuses,
        retryOnTimeout: true,
        backoffLimit: backoffMaxMs,
        jitter: true,
        shouldRetry: ({ error }) => (mayHelp(error, untilMs) ? undefined : false),
      },
    });
    return withKey(response, key);
  } catch (error) {
    if (isHTTPError(error)) return withKey(problemOf(error.response, error.data), key);
    if (signal.aborted && !isKyError(error)) throw error;
    throw new NoAnswerError(request, { cause: error });
  }
}

/** The last answer with the key of the write, with which the caller can ask again. */
function withKey(response: Response, key: string | null): Response {
  if (key !== null) response.headers.set(keyHeader, key);
  return response;
}

/** One attempt, with its answer completely read: a connection that is cut in the middle of an answer has given none. */
async function answerTo(
  request: Request,
  { token, fetch = globalThis.fetch }: WalletClientOptions,
): Promise<Response> {
  if (token !== undefined) request.headers.set('authorization', `Bearer ${await token()}`);
  const response = await fetch(request);
  const body = await response.arrayBuffer();
  return new Response(body.byteLength === 0 ? null : body, response);
}

/** Whether another attempt may be answered differently, and in time. */
function mayHelp(error: Error, untilMs: number): boolean {
  if (!isHTTPError<Problem>(error)) return true;
  const { response, data } = error;
  // A closed wallet, for example, stays closed.
  const code = typeof data === 'object' ? data.code : undefined;
  if (response.status === 409 && code !== 'stale-record') return false;
  const afterMs = Number(response.headers.get('retry-after') ?? 0) * 1_000;
  return !(performance.now() + afterMs >= untilMs);
}

/** The last answer, whose body was read to look at its code. */
function problemOf({ status, headers }: Response, data: unknown): Response {
  return new Response(typeof data === 'string' ? data : JSON.stringify(data), { status, headers });
}

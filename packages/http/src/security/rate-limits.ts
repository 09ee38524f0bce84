import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';

import { ProblemError } from '../problem/problem-error.js';

/** A number of requests within a window of time, in seconds. The window begins with the client's first request. */
export interface RateLimit {
  readonly requests: number;
  readonly seconds: number;
}

/** The kind of client whose requests are counted. */
export type RateSubject = 'address' | 'principal';

/** The maximum rates of requests; `false` for no limit. */
export interface RateLimitSettings {
  readonly perAddress: RateLimit | false;
  readonly perPrincipal: RateLimit | false;
}

/** Counts the requests of clients against a limit, as the classes of `rate-limiter-flexible` do. */
export interface RateCounter {
  /** Resolves while the client is within its limit; rejects with a `RateLimiterRes` beyond it. */
  consume(key: string): Promise<unknown>;
}

/** Creates the counter of a limit. */
export type RateCounterFactory = (subject: RateSubject, limit: RateLimit) => RateCounter;

/**
 * Ends a request whose client has exceeded its limit, with the code `too-many-requests`. Its headers describe the limit
 * (draft-ietf-httpapi-ratelimit-headers-11).
 */
export class TooManyRequestsError extends ProblemError {
  readonly subject: RateSubject;
  /** The time until the next request is served, in milliseconds; `retryAfterSeconds` is the same in whole seconds. */
  readonly retryAfterMs: number;

  constructor(subject: RateSubject, { requests, seconds }: RateLimit, retryAfterMs: number) {
    const retryAfterSeconds = Math.max(1, Math.ceil(retryAfterMs / 1_000));
    const per = seconds === 1 ? 'a second' : `${seconds} seconds`;
    const message = `Each ${subject} may send ${requests} requests in ${per}; this one was not served`;
    const headers = {
      'ratelimit-policy': `"${subject}";q=${requests};w=${seconds}`,
      ratelimit: `"${subject}";r=0;t=${retryAfterSeconds}`,
    };
    super('too-many-requests', message, { headers, retryAfterSeconds });
    this.subject = subject;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Limits the rates at which addresses and principals send requests. */
export class RateLimits {
  readonly #limits: Readonly<Record<RateSubject, Counted | undefined>>;

  /** @param counterOf creates the counters. Default: in the memory of this process; `openSharedRates` has one for several processes. */
  constructor({ perAddress, perPrincipal }: RateLimitSettings, counterOf: RateCounterFactory = inMemory) {
    const counted = (subject: RateSubject, limit: RateLimit | false): Counted | undefined =>
      limit === false ? undefined : { limit, counter: counterOf(subject, limit) };
    this.#limits = {
      address: counted('address', perAddress),
      principal: counted('principal', perPrincipal),
    };
  }

  /**
   * Counts a request.
   *
   * @param client the address or the name of the principal
   * @returns the error with which to refuse the request; `undefined` when it is within the limit, or there is none
   */
  async refusal(subject: RateSubject, client: string): Promise<TooManyRequestsError | undefined> {
    const counted = this.#limits[subject];
    try {
      await counted?.counter.consume(client);
      return undefined;
    } catch (reached) {
      if (counted === undefined || !(reached instanceof RateLimiterRes)) throw reached;
      return new TooManyRequestsError(subject, counted.limit, reached.msBeforeNext);
    }
  }
}

interface Counted {
  readonly limit: RateLimit;
  readonly counter: RateCounter;
}

/** Counts in the memory of this process. */
export const inMemory: RateCounterFactory = (subject, { requests, seconds }) =>
  new RateLimiterMemory({ keyPrefix: subject, points: requests, duration: seconds });

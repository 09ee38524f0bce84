import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';

/** How many requests a client may send within a window of time; the window begins with its first request. */
export interface RateLimit {
  readonly requests: number;
  readonly seconds: number;
}

/** What is counted: the requests of an address or of a principal. */
export type RateSubject = 'address' | 'principal';

/** Counts what clients consume, as the classes of `rate-limiter-flexible` do. */
export interface RateCounter {
  /** Resolves when the client may go on; rejects with a `RateLimiterRes` when it has reached its limit. */
  consume(key: string): Promise<RateLimiterRes>;
}

/** A client has sent more requests than it may; this one was not served. */
export class TooManyRequestsError extends Error {
  readonly code = 'too-many-requests';
  /** Whose limit it is. */
  readonly subject: RateSubject;
  readonly limit: RateLimit;
  /** How long it takes until the next request is served, in milliseconds. */
  readonly retryAfterMs: number;

  constructor(subject: RateSubject, limit: RateLimit, retryAfterMs: number) {
    const { requests, seconds } = limit;
    const per = seconds === 1 ? 'a second' : `${seconds} seconds`;
    super(`Each ${subject} may send ${requests} requests in ${per}; this one was not served`);
    this.name = 'TooManyRequestsError';
    this.subject = subject;
    this.limit = limit;
    this.retryAfterMs = retryAfterMs;
  }

  /** In whole seconds, at least one: what `Retry-After` says. */
  get retryAfterSeconds(): number {
    return Math.max(1, Math.ceil(this.retryAfterMs / 1_000));
  }

  /** The headers that describe the limit (draft-ietf-httpapi-ratelimit-headers-11). */
  get headers(): Readonly<Record<string, string>> {
    const { requests, seconds } = this.limit;
    return {
      'ratelimit-policy': `"${this.subject}";q=${requests};w=${seconds}`,
      ratelimit: `"${this.subject}";r=0;t=${this.retryAfterSeconds}`,
    };
  }
}

/** The maximum rates of requests; `false` means that there is none. */
export interface RateLimitSettings {
  readonly perAddress: RateLimit | false;
  readonly perPrincipal: RateLimit | false;
}

/** Limits how many requests an address and a principal may send. */
export class RateLimits {
  readonly #settings: Readonly<Record<RateSubject, RateLimit | false>>;
  readonly #counters: ReadonlyMap<RateSubject, RateCounter>;

  /** @param counterOf makes what counts. Default: in the memory of this process. */
  constructor(
    { perAddress, perPrincipal }: RateLimitSettings,
    counterOf: (subject: RateSubject, limit: RateLimit) => RateCounter = inMemory,
  ) {
    this.#settings = { address: perAddress, principal: perPrincipal };
    this.#counters = new Map(
      (['address', 'principal'] as const).flatMap((subject) => {
        const limit = this.#settings[subject];
        return limit === false ? [] : [[subject, counterOf(subject, limit)] as const];
      }),
    );
  }

  /** Counts a request; returns the reason why it is refused, if it is. */
  async refusal(subject: RateSubject, client: string): Promise<TooManyRequestsError | undefined> {
    const limit = this.#settings[subject];
    const counter = this.#counters.get(subject);
    if (limit === false || counter === undefined) return undefined;
    try {
      await counter.consume(client);
      return undefined;
    } catch (reached) {
      if (!(reached instanceof RateLimiterRes)) throw reached;
      return new TooManyRequestsError(subject, limit, reached.msBeforeNext);
    }
  }
}

/** Counts in the memory of this process. */
export function inMemory(subject: RateSubject, { requests, seconds }: RateLimit): RateCounter {
  return new RateLimiterMemory({ keyPrefix: subject, points: requests, duration: seconds });
}

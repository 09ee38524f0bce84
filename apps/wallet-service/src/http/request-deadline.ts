import type { IncomingMessage } from 'node:http';

/** How long a client may take to send the headers of a request, and the whole request. */
export interface RequestTimeLimits {
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

/**
 * The deadline of a request that Node's server reports as late. Node also counts time in which the service did not read
 * from the connection. So the time limits start again when reading resumes.
 */
export class RequestDeadline {
  readonly #limits: RequestTimeLimits;
  readonly #isReading: () => boolean;
  readonly #onMissed: () => void;
  /** The late request; `awaited` until its headers have been read. */
  #late: IncomingMessage | 'awaited' | undefined;
  #resumedAtMs = -Infinity;
  #timer: NodeJS.Timeout | undefined;

  /** @param onMissed called when the client's time is over and the request is still incomplete */
  constructor(limits: RequestTimeLimits, isReading: () => boolean, onMissed: () => void) {
    this.#limits = limits;
    this.#isReading = isReading;
    this.#onMissed = onMissed;
  }

  /** Starts to watch the request that is being read. Node's server reports each request at most once. */
  watch(latest: IncomingMessage | undefined): void {
    this.#late = latest?.complete === false ? latest : 'awaited';
    this.#check();
  }

  /** Must be called when the headers of a request have been read. */
  headersRead(request: IncomingMessage): void {
    if (this.#late === 'awaited') this.#late = request;
  }

  /** Must be called when reading resumes after a pause. */
  resumed(): void {
    this.#resumedAtMs = performance.now();
    if (this.#late !== undefined) this.#check();
  }

  /** Stops watching. */
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

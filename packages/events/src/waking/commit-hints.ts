import { type Clock, type HintChannel, outsideRequests } from '@framework/core';

/** Tells other processes that something was committed: at once, then at most once per interval. */
export class CommitHints {
  readonly #channel: Pick<HintChannel, 'notify'>;
  readonly #intervalMs: number;
  readonly #clock: Clock;
  readonly #onError: (error: unknown) => void;
  #lastMs = -Infinity;
  #pending = false;
  #sending = false;
  readonly #stopped = new AbortController();

  constructor(options: {
    readonly channel: Pick<HintChannel, 'notify'>;
    readonly intervalMs: number;
    readonly clock: Clock;
    readonly onError: (error: unknown) => void;
  }) {
    this.#channel = options.channel;
    this.#intervalMs = options.intervalMs;
    this.#clock = options.clock;
    this.#onError = options.onError;
  }

  /** Returns at once, whatever becomes of the hint: nobody's commit waits for it. */
  hint(): void {
    this.#pending = true;
    // For whoever commits meanwhile as well.
    if (!this.#sending) outsideRequests(() => void this.#send());
  }

  stop(): void {
    this.#stopped.abort();
  }

  /** One at a time, so that a database that does not answer holds one statement and not many. */
  async #send(): Promise<void> {
    this.#sending = true;
    while (this.#pending && !this.#stopped.signal.aborted) {
      const waitMs = this.#lastMs + this.#intervalMs - this.#clock.elapsedMs();
      if (waitMs > 0) await this.#clock.sleep(waitMs, this.#stopped.signal);
      this.#lastMs = this.#clock.elapsedMs();
      // What is committed from here on is not covered by this hint any more.
      this.#pending = false;
      if (this.#stopped.signal.aborted) break;
      await this.#channel.notify().catch(this.#onError);
    }
    this.#sending = false;
  }
}

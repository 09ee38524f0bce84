import { type ErrorCode, FrameworkError } from '@framework/core';

/**
 * The codes of errors by which a database says that it cannot serve now, or not from where delivery stands: every handler is told
 * that by itself.
 */
const outageCodes: ReadonlySet<ErrorCode> = new Set([
  'shard-unavailable',
  'transient-storage',
  'commit-outcome-unknown',
  'history-changed',
]);
/** How many different texts of one outage are remembered. */
const textsMax = 20;

/**
 * Reports the errors of the loops that work on one database.
 *
 * During an outage each loop fails again and again, mostly with the same text: each text is reported once until the database
 * serves again, which is reported as well. All other errors are reported each time.
 */
export class OutageReport {
  readonly #onError: (error: unknown) => void;
  readonly #onRecovered: () => void;
  readonly #reported = new Set<string>();

  constructor(options: {
    readonly onError: (error: unknown) => void;
    /** Called once at the end of an outage of which something was reported. */
    readonly onRecovered: () => void;
  }) {
    this.#onError = options.onError;
    this.#onRecovered = options.onRecovered;
  }

  failed(error: unknown): void {
    const known = FrameworkError.find(error);
    if (known !== undefined && outageCodes.has(known.code)) {
      if (this.#reported.has(known.message)) return;
      if (this.#reported.size >= textsMax) this.#reported.clear();
      this.#reported.add(known.message);
    }
    this.#onError(error);
  }

  /** Ends the outage, if there is one. */
  succeeded(): void {
    if (this.#reported.size === 0) return;
    this.#reported.clear();
    this.#onRecovered();
  }
}

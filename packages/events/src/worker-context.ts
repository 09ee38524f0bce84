import { type Clock, type ErrorCode, FrameworkError } from '@framework/core';

import type { AttemptFailureHook } from './call/attempt-failure.js';
import type { EngineSettings } from './delivery-settings.js';

/** What all parts of one database's delivery share. */
export interface WorkerContext {
  readonly settings: EngineSettings;
  readonly clock: Clock;
  /** Gives a number from 0 to 1, for jitter. */
  readonly random: () => number;
  /** Takes what cannot be thrown anywhere; never throws. */
  readonly onError: (error: unknown) => void;
  /** Takes every call of a handler that did not succeed; never throws. */
  readonly onAttemptFailed: AttemptFailureHook;
  /** Aborted when nothing new is to begin: what runs may finish. */
  readonly stopping: AbortSignal;
  /** Aborted when everything must end, finished or not. */
  readonly ended: AbortSignal;
}

/** A backoff by the settings, for one loop. */
export function storeBackoff({ clock, random, settings }: WorkerContext): StoreBackoff {
  return new StoreBackoff({
    clock,
    random,
    baseMs: settings.storeBackoffBaseMs,
    maxMs: settings.storeBackoffMaxMs,
  });
}

/** Repeats what a database refuses for now: waits longer each time, and starts anew after a success. */
export class StoreBackoff {
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #baseMs: number;
  readonly #maxMs: number;
  #failures = 0;

  constructor(options: {
    readonly clock: Clock;
    readonly random: () => number;
    readonly baseMs: number;
    readonly maxMs: number;
  }) {
    this.#clock = options.clock;
    this.#random = options.random;
    this.#baseMs = options.baseMs;
    this.#maxMs = options.maxMs;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  /** How long to wait after a failure: at least half of the time that is due, so that no loop is ever tight. */
  failedMs(): number {
    const dueMs = Math.min(this.#maxMs, this.#baseMs * 2 ** this.#failures++);
    return dueMs * (0.5 + this.#random() / 2);
  }

  /** Waits as long as {@link StoreBackoff.failedMs} says, or until the signal is aborted. */
  async failed(signal?: AbortSignal): Promise<void> {
    await this.#clock.sleep(this.failedMs(), signal);
  }
}

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

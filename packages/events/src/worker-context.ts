import { type Clock, type ErrorCode, FrameworkError } from '@framework/core';
import type { Observe } from '@framework/core/adapter';

import type { AttemptFailureHook } from './call/attempt-failure.js';
import type { TurnTime } from './call/call-deadlines.js';
import type { EngineSettings } from './delivery-settings.js';

/** What all parts of one database's delivery share. */
export interface WorkerContext {
  readonly settings: EngineSettings;
  readonly clock: Clock;
  /** Returns a number from 0 to 1, for jitter. */
  readonly random: () => number;
  /** Called with errors that cannot be thrown to a caller; never throws. */
  readonly onError: (error: unknown) => void;
  /** Called for every handler call that did not succeed; never throws. */
  readonly onAttemptFailed: AttemptFailureHook;
  readonly observe: Observe;
  /** How long the handlers of the process have computed in this turn of the event loop. */
  readonly turn: TurnTime;
  /** Aborted when nothing new may begin; running work may finish. */
  readonly stopping: AbortSignal;
  /** Aborted when everything must end, finished or not. */
  readonly ended: AbortSignal;
}

/**
 * The waits after operations that the database refuses for now: each wait is longer than the one before, up to a maximum, until
 * an operation succeeds.
 */
export class StoreBackoff {
  readonly #context: WorkerContext;
  #failures = 0;

  constructor(context: WorkerContext) {
    this.#context = context;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  /** How long to wait after a failure, in milliseconds: at least half of the full wait, so that no loop is ever tight. */
  failedMs(): number {
    const { random, settings } = this.#context;
    const dueMs = Math.min(settings.storeBackoffMaxMs, settings.storeBackoffBaseMs * 2 ** this.#failures++);
    return dueMs * (0.5 + random() / 2);
  }

  /**
   * Does work; if the database refuses it, reports that, and waits until the signal is aborted at the latest.
   *
   * @returns whether the work is done
   */
  async tried(work: () => Promise<unknown>, signal?: AbortSignal): Promise<boolean> {
    try {
      await work();
      this.succeeded();
      return true;
    } catch (error) {
      this.#context.onError(error);
      await this.failed(signal);
      return false;
    }
  }

  /** Waits for the time of {@link StoreBackoff.failedMs}, or until the signal is aborted. */
  async failed(signal?: AbortSignal): Promise<void> {
    await this.#context.clock.sleep(this.failedMs(), signal);
  }
}

/** Ends the wait of one loop early when it is given, even if it was given before the wait began. */
export class WakeSignal {
  readonly #clock: Clock;
  #woken = false;
  #wake: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends the current wait, or otherwise the next one at once. */
  wake(): void {
    this.#woken = true;
    this.#wake?.();
  }

  /** Waits until it is woken, or for a duration in milliseconds if one is given; returns whether it was woken. */
  async wait(durationMs?: number): Promise<boolean> {
    if (!this.#woken) {
      await new Promise<void>((resolve) => {
        // Not an abortable sleep, because aborting creates a stack trace, at each wait of each loop.
        const cancel = durationMs === undefined ? undefined : this.#clock.after(durationMs, resolve);
        this.#wake = () => {
          cancel?.();
          resolve();
        };
      });
      this.#wake = undefined;
    }
    const wasWoken = this.#woken;
    this.#woken = false;
    return wasWoken;
  }
}

/** Resolves when a signal is aborted; at once if it already is, because it would never call a listener then. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve());
  });
}

/** Waits for work, but not longer than a duration in milliseconds. */
export async function within(clock: Clock, durationMs: number, work: Promise<unknown>): Promise<void> {
  const over = new AbortController();
  try {
    await Promise.race([work, clock.sleep(durationMs, over.signal)]);
  } finally {
    over.abort();
  }
}

/**
 * Repeats work that the database refuses for now, with growing waits, until it succeeds.
 *
 * @returns the result of the work; `undefined` when the signal was aborted before it succeeded
 */
export async function untilDone<T>(
  context: WorkerContext,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T | undefined> {
  const backoff = new StoreBackoff(context);
  let result: T | undefined;
  for (let isDone = false; !isDone && !signal.aborted;)
    isDone = await backoff.tried(async () => (result = await work()), signal);
  return result;
}

/** Wraps a hook so that it never throws or rejects: reporting an error must not cause another one. */
export function quiet<Report>(hook: (report: Report) => unknown): (report: Report) => void {
  return (report) => {
    // A failing hook has no other hook to report to.
    void new Promise((resolve) => resolve(hook(report))).catch(() => undefined);
  };
}

/**
 * Codes of errors that mean an unavailable database or stale cursors. Errors thrown by handlers are failed attempts and never
 * reach this report.
 */
const outageCodes: ReadonlySet<ErrorCode> = new Set([
  'shard-unavailable',
  'databases-closed',
  'transient-storage',
  'commit-outcome-unknown',
  'history-changed',
]);
/** How many different texts of one outage are remembered. */
const textsMax = 20;

/**
 * Reports the errors of the loops that work on one database.
 *
 * During an outage each loop fails again and again, mostly with the same text. Each text is reported once until the database is
 * available again, which is reported as well. All other errors are reported each time.
 */
export class OutageReport {
  readonly #onError: (error: unknown) => void;
  readonly #onRecovered: () => void;
  readonly #reported = new Set<string>();

  /** @param onRecovered called once at the end of an outage that was reported */
  constructor(onError: (error: unknown) => void, onRecovered: () => void) {
    this.#onError = onError;
    this.#onRecovered = onRecovered;
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

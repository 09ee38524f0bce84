import type { Clock } from '@framework/core';

/** The running calls of one handler; ends those that take too long, with one timer for all of them. */
export class CallDeadlines<Call extends object> {
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #onExpired: (call: Call) => void;
  /** The calls in the order in which they began, so that the first one expires first. */
  readonly #startedMs = new Map<Call, number>();
  /** Cancels the timer; `undefined` while there is none. */
  #cancelTimer: (() => void) | undefined;

  /** @param onExpired called with each call that takes too long, and must remove it */
  constructor(timeoutMs: number, clock: Clock, onExpired: (call: Call) => void) {
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  get calls(): Iterable<Call> {
    return this.#startedMs.keys();
  }

  add(call: Call): void {
    this.#startedMs.set(call, this.#clock.elapsedMs());
    if (this.#cancelTimer === undefined) this.#watch();
  }

  /** Stops watching a call; returns false if it was already removed. */
  remove(call: Call): boolean {
    return this.#startedMs.delete(call);
  }

  /** Ends the timer; calls that are added later are watched again. */
  stop(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  /** Expires calls, and sets the timer for the next one. It holds none of them: it would keep it in memory after its end. */
  #watch(): void {
    const leftMs = this.#expire();
    this.#cancelTimer = leftMs === undefined ? undefined : this.#clock.after(leftMs, () => this.#watch());
  }

  /**
   * Expires every call whose time is over: even the shortest timer takes a millisecond, which adds up if thousands expire together.
   *
   * @returns the time until the next one expires, in milliseconds; `undefined` when no call is left
   */
  #expire(): number | undefined {
    for (const [call, startedMs] of this.#startedMs) {
      const leftMs = startedMs + this.#timeoutMs - this.#clock.elapsedMs();
      if (leftMs > 0) return leftMs;
      this.#onExpired(call);
    }
    return undefined;
  }
}

/** Why a delivering process must be restarted: calls of its handlers hang, and nothing ends them. */
export interface RestartNeed {
  /** How many abandoned calls are still running. */
  readonly abandonedCount: number;
  /** How many abandoned calls of each handler are still running, by its durable name. */
  readonly countByHandler: ReadonlyMap<string, number>;
}

/** Called once when a restart is needed; end the process with an exit code that makes its supervisor restart it. */
export type RestartHook = (need: RestartNeed) => void;

/** Writes to standard error that a restart is needed: the default when no hook is given. */
export function logRestartNeed({ abandonedCount, countByHandler }: RestartNeed): void {
  const handlers = [...countByHandler].map(([handler, count]) => `${handler} (${count})`).join(', ');
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(
    `Delivery has stopped, and this process must be restarted: ${abandonedCount} calls of handlers keep running, ` +
      `although their signal was aborted: ${handlers}`,
  );
}

interface AbandonedCallsOptions {
  /** The number of abandoned calls at which no further calls are made. */
  readonly max: number;
  /** How long that number may last before a restart is requested. */
  readonly forMs: number;
  readonly clock: Clock;
  /** Called once, to request a restart. */
  readonly onRestartNeeded: RestartHook;
}

/**
 * Counts the abandoned calls of all handlers of a process that are still running.
 *
 * Nothing ends a call that ignores its signal. When there are too many, no further calls are made. If that lasts, the process
 * might never deliver again, so it requests a restart.
 */
export class AbandonedCalls {
  readonly #options: AbandonedCallsOptions;
  readonly #onRoom = new Set<() => void>();
  readonly #countByHandler = new Map<string, number>();
  #count = 0;
  /** Cancels the request for a restart that is due; `undefined` while there is room. */
  #cancelRequest: (() => void) | undefined;
  #isStopped = false;

  constructor(options: AbandonedCallsOptions) {
    this.#options = options;
  }

  /** Whether there are so many abandoned calls that no further call may be made. */
  get full(): boolean {
    return this.#count >= this.#options.max;
  }

  /** Calls the listener whenever further calls may be made again, after {@link AbandonedCalls.full}. */
  onRoom(listener: () => void): void {
    this.#onRoom.add(listener);
  }

  add(handler: string): void {
    this.#count++;
    this.#countByHandler.set(handler, (this.#countByHandler.get(handler) ?? 0) + 1);
    if (!this.full || this.#isStopped) return;
    const { clock, forMs } = this.#options;
    this.#cancelRequest ??= clock.after(forMs, () => this.#requestRestart());
  }

  remove(handler: string): void {
    const wasFull = this.full;
    this.#count--;
    const left = (this.#countByHandler.get(handler) ?? 1) - 1;
    if (left === 0) this.#countByHandler.delete(handler);
    else this.#countByHandler.set(handler, left);
    if (!wasFull || this.full) return;
    this.#cancelRequest?.();
    this.#cancelRequest = undefined;
    for (const listener of this.#onRoom) listener();
  }

  /** Requests no restart from now on, because the process is ending anyway. */
  stop(): void {
    this.#isStopped = true;
    this.#cancelRequest?.();
  }

  #requestRestart(): void {
    this.#isStopped = true;
    const countByHandler = new Map(this.#countByHandler);
    this.#options.onRestartNeeded({ abandonedCount: this.#count, countByHandler });
  }
}

/** How long handlers may compute in one turn of the event loop. */
const turnMaxMs = 20;

/**
 * How long the handlers of a process have computed in this turn of its event loop.
 *
 * Handlers that wait for nothing are called one after the other within one turn. During a long backlog, no lease would be renewed
 * and no request answered. So once handlers have computed for long enough, further calls wait for the next turn.
 */
export class TurnTime {
  readonly #clock: Clock;
  /** The listeners, in the order in which they are called in the next turn. */
  #onNextTurn: readonly (() => void)[] = [];
  #spentMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether further calls are to wait for the next turn. */
  get spent(): boolean {
    return this.#spentMs >= turnMaxMs;
  }

  /**
   * After each turn whose time was {@link TurnTime.spent}, calls the listener in the next turn, or in a later one if other
   * listeners spend the time of that turn.
   */
  onNextTurn(listener: () => void): void {
    this.#onNextTurn = [...this.#onNextTurn, listener];
  }

  /** Counts how long work takes until it returns; for asynchronous work, until it first waits. */
  measure<T>(work: () => T): T {
    const startedMs = this.#clock.elapsedMs();
    try {
      return work();
    } finally {
      this.#spend(this.#clock.elapsedMs() - startedMs);
    }
  }

  #spend(durationMs: number): void {
    const wasSpent = this.spent;
    this.#spentMs += durationMs;
    if (wasSpent || !this.spent) return;
    this.#clock.after(0, () => this.#begin());
  }

  /** Rotates the listeners: those that got no time come first in the next turn, so that one long backlog cannot starve them. */
  #begin(): void {
    this.#spentMs = 0;
    const listeners = this.#onNextTurn;
    for (const [index, listener] of listeners.entries()) {
      listener();
      if (!this.spent) continue;
      this.#onNextTurn = [...listeners.slice(index + 1), ...listeners.slice(0, index + 1)];
      return;
    }
  }
}

import type { Clock } from '@framework/core';

/** The calls of one handler that run; ends those that take too long, with one sleep for all of them. */
export class CallDeadlines<Call extends object> {
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #onExpired: (call: Call) => void;
  /** In the order in which they began, so that the first one expires first. */
  readonly #startedMs = new Map<Call, number>();
  #watching = false;
  #stopped = new AbortController();

  /** @param onExpired called with each call that takes longer, which is to be removed then */
  constructor(timeoutMs: number, clock: Clock, onExpired: (call: Call) => void) {
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  /** The calls that are watched. */
  get calls(): Iterable<Call> {
    return this.#startedMs.keys();
  }

  add(call: Call): void {
    this.#startedMs.set(call, this.#clock.elapsedMs());
    if (!this.#watching) void this.#watch();
  }

  /** Watches a call no more; false when it was removed before. */
  remove(call: Call): boolean {
    return this.#startedMs.delete(call);
  }

  /** Ends the sleep; calls that are added later are watched again. */
  stop(): void {
    this.#stopped.abort();
    this.#stopped = new AbortController();
  }

  async #watch(): Promise<void> {
    this.#watching = true;
    const { signal } = this.#stopped;
    for (const [call, startedMs] of this.#startedMs) {
      const leftMs = startedMs + this.#timeoutMs - this.#clock.elapsedMs();
      // Even the shortest timer takes a millisecond, which adds up where thousands expire together.
      if (leftMs > 0) await this.#clock.sleep(leftMs, signal);
      if (signal.aborted) break;
      // It may have returned meanwhile; the loop goes on with the oldest that has not.
      if (this.#startedMs.has(call)) this.#onExpired(call);
    }
    this.#watching = false;
  }
}

/** Why a process that delivers has to be restarted: calls of its handlers hang, and nothing ends them. */
export interface RestartNeed {
  /** How many calls were given up and still run. */
  readonly abandonedCount: number;
  /** How many of them each handler has, by its durable name. */
  readonly countByHandler: ReadonlyMap<string, number>;
}

/** Takes the need, once; what a supervisor restarts should end then, with an exit code that says so. */
export type RestartHook = (need: RestartNeed) => void;

/** Writes the need to standard error: the default when no hook is given. */
export function logRestartNeed({ abandonedCount, countByHandler }: RestartNeed): void {
  const handlers = [...countByHandler].map(([handler, count]) => `${handler} (${count})`).join(', ');
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(
    `Delivery has stopped, and this process is to be restarted: ${abandonedCount} calls of handlers ignore ` +
      `their aborted signal and keep running, of ${handlers}`,
  );
}

/**
 * Counts the calls of all handlers of a process that were given up and still run.
 *
 * Nothing ends a call that ignores its signal. Beyond a limit no further calls are made; if that lasts, the process would
 * stand still for ever, and requests a restart.
 */
export class AbandonedCalls {
  readonly #max: number;
  readonly #forMs: number;
  readonly #clock: Clock;
  readonly #onRestartNeeded: RestartHook;
  readonly #onRoom = new Set<() => void>();
  readonly #countByHandler = new Map<string, number>();
  readonly #stopped = new AbortController();
  #count = 0;
  /** Ends the waiting for calls to end. */
  #room: AbortController | undefined;

  /**
   * @param options.max how many there may be
   * @param options.forMs for how long there may be as many
   * @param options.onRestartNeeded called once, when there were as many for as long
   */
  constructor(options: {
    readonly max: number;
    readonly forMs: number;
    readonly clock: Clock;
    readonly onRestartNeeded: RestartHook;
  }) {
    this.#max = options.max;
    this.#forMs = options.forMs;
    this.#clock = options.clock;
    this.#onRestartNeeded = options.onRestartNeeded;
  }

  /** Whether there are so many that no further call may be made. */
  get full(): boolean {
    return this.#count >= this.#max;
  }

  /** Calls back whenever it is {@link AbandonedCalls.full} no more. */
  onRoom(listener: () => void): void {
    this.#onRoom.add(listener);
  }

  /** Counts a call that was given up. */
  add(handler: string): void {
    this.#count++;
    this.#countByHandler.set(handler, (this.#countByHandler.get(handler) ?? 0) + 1);
    if (this.full && this.#room === undefined) void this.#wait();
  }

  /** Says that such a call has ended after all. */
  remove(handler: string): void {
    const wasFull = this.full;
    this.#count--;
    const left = (this.#countByHandler.get(handler) ?? 1) - 1;
    if (left === 0) this.#countByHandler.delete(handler);
    else this.#countByHandler.set(handler, left);
    if (!wasFull || this.full) return;
    this.#room?.abort();
    for (const listener of this.#onRoom) listener();
  }

  /** Requests no restart from now on, because the process ends anyway. */
  stop(): void {
    this.#stopped.abort();
  }

  async #wait(): Promise<void> {
    const room = (this.#room = new AbortController());
    await this.#clock.sleep(this.#forMs, AbortSignal.any([room.signal, this.#stopped.signal]));
    this.#room = undefined;
    if (this.#stopped.signal.aborted) return;
    if (!room.signal.aborted) {
      this.#stopped.abort();
      this.#onRestartNeeded({
        abandonedCount: this.#count,
        countByHandler: new Map(this.#countByHandler),
      });
    } else if (this.full) {
      await this.#wait();
    }
  }
}

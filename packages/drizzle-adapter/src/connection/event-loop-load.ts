import { type EventLoopUtilization, performance } from 'node:perf_hooks';

/** How often the load is measured, in milliseconds. */
const intervalMs = 100;
/** The share of the time from which the event loop counts as busy. */
const busyShare = 0.5;

/** Tells whether this process has more to do than time to spare. */
export class EventLoopLoad {
  #measuredAtMs = 0;
  #measured: EventLoopUtilization = performance.eventLoopUtilization();
  #isBusy = false;

  /** Whether the event loop was busy for at least half of the last tenth of a second or so. */
  isBusy(nowMs: number): boolean {
    if (nowMs - this.#measuredAtMs < intervalMs) return this.#isBusy;
    const now = performance.eventLoopUtilization();
    this.#isBusy = performance.eventLoopUtilization(now, this.#measured).utilization >= busyShare;
    this.#measured = now;
    this.#measuredAtMs = nowMs;
    return this.#isBusy;
  }
}

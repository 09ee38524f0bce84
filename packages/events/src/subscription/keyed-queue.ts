import type { EventWork } from '../slots/held-slot.js';
import { heldBytes } from './log-reader.js';
import type { RetryWork } from './retry-step.js';

/** Work that must be done strictly one after the other: that of one model, or of one slot for a batch handler. */
export interface KeyedQueue {
  readonly key: string;
  /** Heads of blocked models that wait for an attempt, the oldest first. */
  readonly retries: RetryWork[];
  /** Events that wait; each step takes some from the front. */
  events: EventWork[];
  /** Whether the last step tried a head, so that events are next. */
  hasRetried: boolean;
  active: boolean;
  /** Held back by {@link KeyedQueues.holdUntil}: it uses no capacity and gets no step until it is released. */
  held: boolean;
}

/** Runs a limited number of queues in parallel, each one step at a time. */
export class KeyedQueues {
  readonly #concurrency: number;
  readonly #mayStart: () => boolean;
  readonly #step: (queue: KeyedQueue) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  readonly #queues = new Map<string, KeyedQueue>();
  /** The queues with work, in the order of their next step. */
  readonly #ready = new Set<KeyedQueue>();
  #activeCount = 0;
  readonly #onIdle: (() => void)[] = [];

  /**
   * @param options.step takes some work off the queue and does it; its rejections go to `onError`
   * @param options.mayStart false holds back every further step until {@link KeyedQueues.resume}
   */
  constructor(options: {
    readonly concurrency: number;
    readonly mayStart: () => boolean;
    readonly step: (queue: KeyedQueue) => Promise<void>;
    readonly onError: (error: unknown) => void;
  }) {
    this.#concurrency = options.concurrency;
    this.#mayStart = options.mayStart;
    this.#step = options.step;
    this.#onError = options.onError;
  }

  /** Adds an event to its queue; {@link KeyedQueues.resume} starts it, so that events added together are handled together. */
  add(key: string, work: EventWork): void {
    this.#queue(key).events.push(work);
  }

  /** Adds a retry to its queue, and starts it. */
  retry(key: string, work: RetryWork): void {
    this.#queue(key).retries.push(work);
    this.resume();
  }

  /** Removes waiting retries that are no longer wanted, even from queues that are held back. */
  removeRetries(isOff: (work: RetryWork) => boolean): readonly RetryWork[] {
    const removed: RetryWork[] = [];
    for (const queue of this.#queues.values()) {
      const before = removed.length;
      for (const work of queue.retries.splice(0)) (isOff(work) ? removed : queue.retries).push(work);
      if (removed.length > before && !queue.active) this.#settle(queue);
    }
    return removed;
  }

  /** Starts every step that may start. */
  resume(): void {
    for (const queue of this.#ready) {
      if (this.#activeCount >= this.#concurrency || !this.#mayStart()) return;
      this.#run(queue);
    }
  }

  /** Holds a queue back after its current step until a wait is over, so that others can use its capacity. */
  async holdUntil(queue: KeyedQueue, over: Promise<void>): Promise<void> {
    queue.held = true;
    await over;
    queue.held = false;
    if (!queue.active) this.#settle(queue);
  }

  /** Resolves when no work is left. */
  idle(): Promise<void> {
    return this.#queues.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#onIdle.push(resolve));
  }

  #queue(key: string): KeyedQueue {
    let queue = this.#queues.get(key);
    if (queue === undefined) {
      queue = { key, retries: [], events: [], hasRetried: false, active: false, held: false };
      this.#queues.set(key, queue);
    }
    if (!queue.active && !queue.held) this.#ready.add(queue);
    return queue;
  }

  #run(queue: KeyedQueue): void {
    this.#ready.delete(queue);
    queue.active = true;
    this.#activeCount++;
    this.#step(queue).then(
      () => this.#ended(queue),
      (error: unknown) => {
        this.#onError(error);
        this.#ended(queue);
      },
    );
  }

  #ended(queue: KeyedQueue): void {
    this.#activeCount--;
    queue.active = false;
    this.#settle(queue);
  }

  #settle(queue: KeyedQueue): void {
    const isEmpty = queue.retries.length + queue.events.length === 0;
    if (queue.held || isEmpty) this.#ready.delete(queue);
    else this.#ready.add(queue);
    if (!queue.held && isEmpty) this.#queues.delete(queue.key);
    this.resume();
    if (this.#queues.size === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}

/** Events in memory. */
export interface Load {
  readonly count: number;
  readonly bytes: number;
}

export const nothing: Load = { count: 0, bytes: 0 };

export function loadOf(works: readonly EventWork[]): Load {
  return { count: works.length, bytes: works.reduce((sum, { event }) => sum + heldBytes(event), 0) };
}

/** Removes the first events from a queue, at most this many and this many bytes, but at least one. */
export function takeEvents(
  { events }: KeyedQueue,
  { count: countMax, bytes: bytesMax = Infinity }: { readonly count: number; readonly bytes?: number },
): readonly EventWork[] {
  let [count, bytes] = [0, 0];
  for (const { event } of events) {
    bytes += event.bytes ?? 0;
    if (count === countMax || (bytes > bytesMax && count > 0)) break;
    count++;
  }
  return events.splice(0, count);
}

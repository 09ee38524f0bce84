import type { EventWork } from '../slots/held-slot.js';
import { heldBytes } from './log-reader.js';
import type { RetryWork } from './retry-step.js';

/** Work that must be done strictly one after the other: that of one model, or of one slot for a batch handler. */
export interface KeyedQueue<Item> {
  readonly key: string;
  /** The waiting items; each step takes some from the front. */
  readonly items: Item[];
  active: boolean;
  /** Held back by {@link KeyedQueues.hold}: it uses no capacity and gets no step until it is released. */
  held: boolean;
}

/** Runs a limited number of queues in parallel, each one step at a time. */
export class KeyedQueues<Item> {
  readonly #concurrency: number;
  readonly #mayStart: () => boolean;
  readonly #step: (queue: KeyedQueue<Item>) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  readonly #queues = new Map<string, KeyedQueue<Item>>();
  /** The queues with work, in the order of their next step. */
  readonly #ready = new Set<KeyedQueue<Item>>();
  #activeCount = 0;
  readonly #onIdle: (() => void)[] = [];

  /**
   * @param options.step takes at least one item off the queue and works on it; its rejections go to `onError`
   * @param options.mayStart false holds back every further step until {@link KeyedQueues.resume}
   */
  constructor(options: {
    readonly concurrency: number;
    readonly mayStart: () => boolean;
    readonly step: (queue: KeyedQueue<Item>) => Promise<void>;
    readonly onError: (error: unknown) => void;
  }) {
    this.#concurrency = options.concurrency;
    this.#mayStart = options.mayStart;
    this.#step = options.step;
    this.#onError = options.onError;
  }

  /** Adds work to the end of its queue; {@link KeyedQueues.resume} starts it, so that work added together is handled together. */
  add(key: string, item: Item): void {
    this.#queue(key).items.push(item);
  }

  /** Adds work to the front of its queue, and starts it. */
  addFirst(key: string, item: Item): void {
    this.#queue(key).items.unshift(item);
    this.resume();
  }

  /** Removes waiting items that are no longer wanted, even from queues that are held back. */
  remove(isOff: (item: Item) => boolean): readonly Item[] {
    const removed: Item[] = [];
    for (const queue of this.#queues.values()) {
      const before = removed.length;
      for (const item of queue.items.splice(0)) (isOff(item) ? removed : queue.items).push(item);
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

  /** Holds a queue back after its current step, so that others can use its capacity. */
  hold(queue: KeyedQueue<Item>): void {
    queue.held = true;
  }

  /** Releases a queue that was held back. */
  letGo(queue: KeyedQueue<Item>): void {
    queue.held = false;
    if (queue.active) return;
    this.#settle(queue);
  }

  /** Resolves when no work is left. */
  idle(): Promise<void> {
    return this.#queues.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#onIdle.push(resolve));
  }

  #queue(key: string): KeyedQueue<Item> {
    let queue = this.#queues.get(key);
    if (queue === undefined) {
      queue = { key, items: [], active: false, held: false };
      this.#queues.set(key, queue);
    }
    if (!queue.active && !queue.held) this.#ready.add(queue);
    return queue;
  }

  #run(queue: KeyedQueue<Item>): void {
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

  #ended(queue: KeyedQueue<Item>): void {
    this.#activeCount--;
    queue.active = false;
    this.#settle(queue);
  }

  #settle(queue: KeyedQueue<Item>): void {
    if (!queue.held && queue.items.length > 0) this.#ready.add(queue);
    else this.#ready.delete(queue);
    if (!queue.held && queue.items.length === 0) this.#queues.delete(queue.key);
    this.resume();
    if (this.#queues.size === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}

/** An item in a handler's queues. */
export type QueuedWork = EventWork | RetryWork;

/** Events in memory. */
export interface Load {
  readonly count: number;
  readonly bytes: number;
}

export const nothing: Load = { count: 0, bytes: 0 };

export function loadOf(works: readonly QueuedWork[]): Load {
  let [count, bytes] = [0, 0];
  for (const work of works) {
    if (work.kind !== 'event') continue;
    count++;
    bytes += heldBytes(work.event);
  }
  return { count, bytes };
}

/** The index of the first event in a queue; the length of the queue if it has none. */
export function firstEvent(items: readonly QueuedWork[]): number {
  const index = items.findIndex(({ kind }) => kind === 'event');
  return index === -1 ? items.length : index;
}

/**
 * Puts events back in front of a queue. Not by spreading arguments, because a batch may have more events than a call has
 * arguments.
 */
export function putBack(items: QueuedWork[], works: readonly EventWork[]): void {
  const behind = items.splice(firstEvent(items));
  for (const work of works) items.push(work);
  for (const work of behind) items.push(work);
}

/** Removes the first events from a queue, at most this many and this many bytes, but at least one. */
export function takeEvents(
  items: QueuedWork[],
  { count: countMax, bytes: bytesMax = Infinity }: { readonly count: number; readonly bytes?: number },
): readonly EventWork[] {
  const works: EventWork[] = [];
  const from = firstEvent(items);
  let bytes = 0;
  for (let work = items[from]; work?.kind === 'event'; work = items[from + works.length]) {
    if (works.length === countMax) break;
    bytes += work.event.bytes ?? 0;
    if (bytes > bytesMax && works.length > 0) break;
    works.push(work);
  }
  items.splice(from, works.length);
  return works;
}

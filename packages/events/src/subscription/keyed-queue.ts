import type { BlockedHead, DeliverableEvent } from '@framework/core/adapter';

import type { HeldSlot } from '../slots/cursor-saver.js';

/** An event from the log, to be handled or, when its model is blocked, to be blocked. */
export interface EventWork {
  readonly kind: 'event';
  readonly event: DeliverableEvent;
  readonly slot: HeldSlot;
  /** Called once when it is done or blocked. */
  readonly onFinished: () => void;
}

/** A blocked event whose turn it is. */
export interface RetryWork {
  readonly kind: 'retry';
  readonly head: BlockedHead;
  readonly slot: HeldSlot;
  /** Not aborted while no other blocked event is tried; `undefined` when others are. */
  readonly alone: AbortSignal | undefined;
  /** Called once when the attempt has ended, however it did. */
  readonly onEnded: () => void;
}

/** The question whether a model still has blocked events, asked while nothing else happens to the model. */
interface CheckWork {
  readonly kind: 'check';
  readonly slot: HeldSlot;
  /** Any event of the model. */
  readonly event: DeliverableEvent;
}

/** What a handler's queues hold. */
export type QueuedWork = EventWork | RetryWork | CheckWork;

/** Names a model, where handler and database are given. */
export function modelKey({
  modelName,
  modelId,
}: {
  readonly modelName: string;
  readonly modelId: string;
}): string {
  return `${modelName} ${modelId}`;
}

/** Work that must be done strictly one after the other: that of one model, or of one slot for a batch handler. */
export interface KeyedQueue<Item> {
  readonly key: string;
  /** What waits; whoever runs the queue takes from its front. */
  readonly items: Item[];
  active: boolean;
  /** Held back by {@link KeyedQueues.hold}: it takes no place, and gets no step until it is let go. */
  held: boolean;
}

/** Runs queues side by side, up to a bound, each for one step at a time. */
export class KeyedQueues<Item> {
  readonly #concurrency: number;
  readonly #mayStart: () => boolean;
  readonly #step: (queue: KeyedQueue<Item>) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  readonly #queues = new Map<string, KeyedQueue<Item>>();
  /** KeyedQueues with work, in the order in which they get their next step. */
  readonly #ready = new Set<KeyedQueue<Item>>();
  #activeCount = 0;
  readonly #onIdle: (() => void)[] = [];

  /**
   * @param options.step takes at least one item off the queue and works on it; what it rejects with goes to `onError`
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

  /** Adds work behind what waits in its queue; {@link KeyedQueues.resume} starts it, so that work added together is together. */
  add(key: string, item: Item): void {
    this.#queue(key).items.push(item);
  }

  /** Adds work before what waits in its queue, and starts it. */
  addFirst(key: string, item: Item): void {
    this.#queue(key).items.unshift(item);
    this.resume();
  }

  /** Takes away what waits and is not to be worked on any more, also from queues that are held back. */
  remove(isOff: (item: Item) => boolean): readonly Item[] {
    const removed: Item[] = [];
    for (const queue of this.#queues.values()) {
      const before = removed.length;
      for (const item of queue.items.splice(0)) (isOff(item) ? removed : queue.items).push(item);
      if (removed.length > before && !queue.active) this.#settle(queue);
    }
    return removed;
  }

  /** Starts what may start. */
  resume(): void {
    for (const queue of this.#ready) {
      if (this.#activeCount >= this.#concurrency || !this.#mayStart()) return;
      this.#run(queue);
    }
  }

  /** Holds a queue back after its step that runs now; others get its place. */
  hold(queue: KeyedQueue<Item>): void {
    queue.held = true;
  }

  /** Lets a queue go on that was held back. */
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

/** The models that have blocked events for one handler, in the slots that this process holds. */
export class BlockedModelSet {
  /** With each model, which of all additions was its last one. */
  readonly #bySlot = new Map<number, Map<string, number>>();
  #additionCount = 0;
  #deletionCount = 0;

  get empty(): boolean {
    return this.#bySlot.size === 0;
  }

  /** How often a model was found to have no blocked events any more. */
  get deletionCount(): number {
    return this.#deletionCount;
  }

  has(slot: number, model: string): boolean {
    return this.#bySlot.get(slot)?.has(model) ?? false;
  }

  add(slot: number, model: string): void {
    const models = this.#bySlot.get(slot) ?? new Map<string, number>();
    this.#bySlot.set(slot, models.set(model, ++this.#additionCount));
  }

  /** Which of all additions was the last one of a model; `undefined` when it is not in the set. */
  additionOf(slot: number, model: string): number | undefined {
    return this.#bySlot.get(slot)?.get(model);
  }

  delete(slot: number, model: string): void {
    const models = this.#bySlot.get(slot);
    models?.delete(model);
    if (models?.size === 0) this.#bySlot.delete(slot);
    this.#deletionCount++;
  }

  /** Forgets what belongs to a slot that is held no more. */
  drop(slot: number): void {
    this.#bySlot.delete(slot);
  }
}

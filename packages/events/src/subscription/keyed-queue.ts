import type { BlockedHead, DeliverableEvent } from '@framework/core/adapter';

import type { HeldSlot } from '../slots/held-slot.js';

/** An event from the log, to be handled or, if its model is blocked, to be blocked. */
export interface EventWork {
  readonly kind: 'event';
  readonly event: DeliverableEvent;
  readonly slot: HeldSlot;
  /** Called once when it is done or blocked. */
  readonly onFinished: () => void;
}

/** A blocked event that is to be tried next. */
export interface RetryWork {
  readonly kind: 'retry';
  readonly head: BlockedHead;
  readonly slot: HeldSlot;
  /** Aborted once other blocked events may be tried beside this one; `undefined` if they may be from the start. */
  readonly alone: AbortSignal | undefined;
  /** Called once when the attempt has ended, however it did. */
  readonly onEnded: () => void;
}

/** The question whether a model still has blocked events, asked while no other work of the model is running. */
interface CheckWork {
  readonly kind: 'check';
  readonly slot: HeldSlot;
  /** Any event of the model. */
  readonly event: DeliverableEvent;
}

/** An item in a handler's queues. */
export type QueuedWork = EventWork | RetryWork | CheckWork;

/** Identifies a model within a handler and a database. Stored texts contain no NUL, so no two models have the same key. */
export function modelKey({
  modelName,
  modelId,
}: {
  readonly modelName: string;
  readonly modelId: string;
}): string {
  return `${modelName}\0${modelId}`;
}

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

/** The models that have blocked events for one handler, in the slots that this process holds. */
export class BlockedModelSet {
  /** Each model with the number of its last addition, counted over all models. */
  readonly #bySlot = new Map<number, Map<string, number>>();
  #additionCount = 0;
  #deletionCount = 0;

  get empty(): boolean {
    return this.#bySlot.size === 0;
  }

  /** How often a model was found to have no more blocked events. */
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

  /** The number of a model's last addition; `undefined` when it is not in the set. */
  additionOf(slot: number, model: string): number | undefined {
    return this.#bySlot.get(slot)?.get(model);
  }

  delete(slot: number, model: string): void {
    const models = this.#bySlot.get(slot);
    models?.delete(model);
    if (models?.size === 0) this.#bySlot.delete(slot);
    this.#deletionCount++;
  }

  /** Removes the models of a slot that is no longer held. */
  drop(slot: number): void {
    this.#bySlot.delete(slot);
  }
}

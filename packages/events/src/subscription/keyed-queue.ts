import type { EventWork, HeldSlot } from '../slots/held-slot.js';
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

interface KeyedQueuesOptions {
  readonly concurrency: number;
  /** False holds back every further step until {@link KeyedQueues.resume}. */
  readonly mayStart: () => boolean;
  /** Takes some work off the queue and does it; its rejections go to `onError`. */
  readonly step: (queue: KeyedQueue) => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/**
 * Runs a limited number of queues in parallel, each one step at a time. Queues with work of blocked models get up to half of the
 * capacity before all others, so that models recover during a backlog.
 */
export class KeyedQueues {
  readonly #options: KeyedQueuesOptions;
  readonly #recoveriesMax: number;
  readonly #queues = new Map<string, KeyedQueue>();
  /** The queues that may have a step, the first one next; `recoveries` are those whose next work belongs to a blocked model. */
  readonly #ready = { recoveries: new Set<KeyedQueue>(), others: new Set<KeyedQueue>() };
  #activeCount = 0;
  /** How many of the active queues do work of blocked models. */
  #recoveryCount = 0;
  /** Whether the last step was such work. */
  #wasRecovery = false;
  readonly #onIdle: (() => void)[] = [];

  constructor(options: KeyedQueuesOptions) {
    this.#options = options;
    this.#recoveriesMax = Math.max(1, Math.floor(options.concurrency / 2));
  }

  /** Adds an event to its queue; {@link KeyedQueues.resume} starts it, so that events added together are handled together. */
  add(key: string, work: EventWork): void {
    const queue = this.#queue(key);
    if (queue.events.push(work) === 1) this.#mark(queue);
  }

  /** Adds a retry to its queue, and starts it. */
  retry(key: string, work: RetryWork): void {
    const queue = this.#queue(key);
    queue.retries.push(work);
    this.#mark(queue);
    this.resume();
  }

  /** Removes the waiting retries of some slots, even from queues that are held back. */
  removeRetries(isOff: (slot: HeldSlot) => boolean): readonly RetryWork[] {
    return this.#remove(
      ({ retries }) => retries,
      ({ model }) => isOff(model.slot),
    );
  }

  /** Removes the waiting events of some slots, even from queues that are held back. */
  removeEvents(isOff: (slot: HeldSlot) => boolean): readonly EventWork[] {
    return this.#remove(
      ({ events }) => events,
      ({ slot }) => isOff(slot),
    );
  }

  /** Starts every step that may start. */
  resume(): void {
    const { concurrency, mayStart } = this.#options;
    while (this.#activeCount < concurrency && mayStart()) {
      const queue = this.#next();
      if (queue === undefined) return;
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

  #remove<Work>(workOf: (queue: KeyedQueue) => Work[], isOff: (work: Work) => boolean): readonly Work[] {
    const removed: Work[] = [];
    const changed: KeyedQueue[] = [];
    for (const queue of this.#queues.values()) {
      const work = workOf(queue);
      const before = removed.length;
      for (const each of work.splice(0)) (isOff(each) ? removed : work).push(each);
      if (removed.length > before && !queue.active) changed.push(queue);
    }
    for (const queue of changed) this.#settle(queue);
    return removed;
  }

  /** Adds a queue to those that may have a step, if it may. */
  #mark(queue: KeyedQueue): void {
    if (queue.active || queue.held || isEmpty(queue)) return;
    const { recoveries, others } = this.#ready;
    if (isRecovery(queue)) {
      others.delete(queue);
      recoveries.add(queue);
    } else {
      recoveries.delete(queue);
      others.add(queue);
    }
  }

  #unmark(queue: KeyedQueue): void {
    this.#ready.recoveries.delete(queue);
    this.#ready.others.delete(queue);
  }

  #next(): KeyedQueue | undefined {
    const { recoveries, others } = this.#ready;
    // If only one queue can be active, both kinds take turns.
    const hadTheirShare =
      this.#options.concurrency === 1 ? this.#wasRecovery : this.#recoveryCount >= this.#recoveriesMax;
    const [queue] = recoveries.size === 0 || (hadTheirShare && others.size > 0) ? others : recoveries;
    return queue;
  }

  #queue(key: string): KeyedQueue {
    let queue = this.#queues.get(key);
    if (queue === undefined) {
      queue = { key, retries: [], events: [], hasRetried: false, active: false, held: false };
      this.#queues.set(key, queue);
    }
    return queue;
  }

  #run(queue: KeyedQueue): void {
    const recoveryCount = isRecovery(queue) ? 1 : 0;
    this.#wasRecovery = recoveryCount > 0;
    this.#unmark(queue);
    queue.active = true;
    this.#activeCount++;
    this.#recoveryCount += recoveryCount;
    const onEnded = (): void => {
      this.#activeCount--;
      this.#recoveryCount -= recoveryCount;
      queue.active = false;
      this.#settle(queue);
    };
    this.#options.step(queue).then(onEnded, (error: unknown) => {
      this.#options.onError(error);
      onEnded();
    });
  }

  #settle(queue: KeyedQueue): void {
    this.#unmark(queue);
    if (isEmpty(queue) && !queue.held) this.#queues.delete(queue.key);
    this.#mark(queue);
    this.resume();
    if (this.#queues.size === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}

function isEmpty({ retries, events }: KeyedQueue): boolean {
  return retries.length + events.length === 0;
}

/** Whether retries are next: they and events take turns in the queue of a slot, because retries may never end. */
export function isTurnOfRetries({ retries, events, hasRetried }: KeyedQueue): boolean {
  return retries.length > 0 && !(hasRetried && events.length > 0);
}

/** Whether the next step of a queue is work of a blocked model. */
function isRecovery(queue: KeyedQueue): boolean {
  return isTurnOfRetries(queue) || queue.events[0]?.batch !== undefined;
}

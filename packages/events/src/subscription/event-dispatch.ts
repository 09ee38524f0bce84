import type { DeliverableEvent } from '@framework/core/adapter';

import { askedMaxMs } from '../call/attempt-failure.js';
import { HandlerCaller } from '../call/handler-caller.js';
import type { DatabaseHandler } from '../handler/event-handler-registry.js';
import { EventStep, type PendingRetry, finish, isLeft, takeFirst, wantsEvent } from './event-step.js';
import { type KeyedQueue, KeyedQueues, isTurnOfRetries } from './keyed-queue.js';
import { type AttemptEnd, RetryStep, type RetryWork } from './retry-step.js';
import {
  type HandlerDependencies,
  type SubscriptionDependencies,
  handlerPolicy,
} from './subscription-dependencies.js';
import { UnfinishedEvents } from './unfinished-events.js';
import { type EventWork, type HeldSlot, type ModelRecovery, modelKey } from '../slots/held-slot.js';

/** Dispatches the work of one handler: models in parallel, the work of each model one after the other. */
export class EventDispatch {
  readonly unfinished: UnfinishedEvents;
  /** Tries the heads of blocked models. */
  readonly retries: RetryStep;
  readonly #deps: HandlerDependencies;
  readonly #onRoom: () => void;
  readonly #queues: KeyedQueues;
  readonly #events: EventStep;
  /** The queues, each of one slot, whose first events failed and wait to be tried again in the same batch. */
  readonly #waiting = new Map<KeyedQueue, Waiting>();
  #startsSoon = false;
  #paused = false;

  /** @param onRoom called when more may be read */
  constructor(handler: DatabaseHandler, deps: SubscriptionDependencies, onRoom: () => void) {
    const { context, abandoned } = deps;
    const policy = handlerPolicy(handler, context.settings);
    this.#onRoom = onRoom;
    this.unfinished = new UnfinishedEvents(context.settings, () => this.waitingSlots, onRoom);
    const caller = new HandlerCaller({
      ...deps,
      handler,
      timeoutMs: policy.timeoutMs,
      mayCall: () => !this.#paused && !abandoned.full && !context.ended.aborted,
    });
    this.#deps = { ...deps, policy, caller };
    this.#queues = new KeyedQueues({
      concurrency: policy.concurrency,
      mayStart: () => !abandoned.full && !context.turn.spent && !this.#paused,
      step: (queue) => this.#step(queue),
      onError: context.onError,
    });
    abandoned.onRoom(() => this.#queues.resume());
    context.turn.onNextTurn(() => this.#queues.resume());
    this.#events = new EventStep(this.#deps, (slot, kept) => {
      this.#leaveKept(slot, kept);
      deps.onBlocked();
    });
    this.retries = new RetryStep(this.#deps);
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** Whether the handler wants an event. */
  wants({ type }: DeliverableEvent): boolean {
    return wantsEvent(this.#deps.policy, type);
  }

  /** The slots from which nothing more may be read, because their events wait to be tried again, or are being tried again. */
  get waitingSlots(): ReadonlySet<HeldSlot> {
    return new Set([...this.#waiting.values()].map(({ slot }) => slot));
  }

  /** The longest wait for an attempt, in milliseconds. A longer one means that the clock of the database was set back. */
  get waitMaxMs(): number {
    return Math.max(this.#deps.policy.retry.backoffMaxMs, askedMaxMs, this.#deps.context.settings.leaseMs);
  }

  /** How many heads of blocked models may be tried at the same time, so that new events have room left. */
  get retriesMax(): number {
    return Math.max(1, Math.floor(this.#deps.policy.concurrency / 2));
  }

  /** How many heads of one slot may be taken: two if the slot is a single queue, one being tried and the next. */
  get retriesOfSlotMax(): number {
    return this.#deps.policy.batches ? 2 : Infinity;
  }

  /**
   * Handles events of one slot, and leaves those of blocked models in the log.
   *
   * If more events are being read, the calls begin one turn of the event loop later. Handlers that wait for nothing are called
   * one after the other within one turn, and anything written meanwhile, such as the next read, leaves the process only after
   * that turn. Without the delay, the database would wait for the handlers, and then the handlers for the database.
   *
   * @param onFinished called once for each event that is done or left
   */
  handle(
    events: readonly DeliverableEvent[],
    slot: HeldSlot,
    { onFinished, more }: { readonly onFinished: () => void; readonly more: boolean },
  ): void {
    let isQueued = false;
    for (const event of events) {
      const work: EventWork = { event, slot, onFinished };
      const fate = slot.blocked.get(modelKey(event))?.meet(work) ?? 'handle';
      if (fate === 'leave') onFinished();
      if (fate === 'keep') this.unfinished.setAside(slot, [event], 1);
      if (fate !== 'handle') continue;
      this.#queue([work]);
      isQueued = true;
    }
    if (!more) return this.#queues.resume();
    if (!isQueued || this.#startsSoon) return;
    this.#startsSoon = true;
    this.#deps.context.clock.after(0, () => {
      this.#startsSoon = false;
      this.#queues.resume();
    });
  }

  /** Handles drained events in order, behind earlier ones of their model. */
  drain(works: readonly EventWork[]): void {
    this.#queue(works);
    this.#queues.resume();
  }

  /** Opens a model, and continues with the events that were kept until then. */
  open(model: ModelRecovery): void {
    const { done, next } = model.open(this.#deps.reader.generation);
    this.unfinished.setAside(model.slot, eventsOf([...done, ...next]), -1);
    finish(done);
    this.#queue(next);
    this.#queues.resume();
  }

  /** Leaves a model to a later round or to the next holder of its slot; what was kept until it is open stays in the log. */
  leaveModel(model: ModelRecovery): void {
    this.#leaveKept(model.slot, model.wait());
  }

  /** Tries the head of a blocked model when its queue is free; resolves when the attempt has ended. */
  retry(work: Omit<RetryWork, 'onEnded'>): Promise<AttemptEnd> {
    return new Promise((onEnded) => {
      this.#queues.retry(this.#keyOf(work.head.event), { ...work, onEnded });
    });
  }

  /** Makes no further call while the handler is paused, not even with events that were read; running calls may finish. */
  setPaused(paused: boolean): void {
    this.#paused = paused;
    if (paused) {
      this.#leaveRetries(() => true);
      this.leave(({ isLeaving }) => isLeaving);
    }
    this.#queues.resume();
  }

  /** Drops what waits in some slots, so that their next holder reads it again; running calls may finish. */
  leave(isOff: (slot: HeldSlot) => boolean): void {
    this.#leaveRetries(isOff);
    // Those that are being tried again are in no queue, and end by themselves.
    for (const [queue, { slot, isTried }] of this.#waiting)
      if (!isTried && isOff(slot)) this.#waiting.delete(queue);
    const left = this.#queues.removeEvents(isOff);
    this.unfinished.count(left, -1);
    this.#events.leaveUndone(left);
  }

  /** Resolves when no work is left. */
  idle(): Promise<void> {
    return this.#queues.idle();
  }

  /** Begins nothing more for a slot, or at all, and aborts running calls; what batches name as done is still recorded. */
  end(reason: unknown, slot?: HeldSlot): void {
    this.leave((each) => slot === undefined || each === slot);
    this.#deps.caller.end(reason, slot);
  }

  /** Abandons the calls that have not ended since {@link end} was called for a slot, or at all. */
  abandon(reason: unknown, slot?: HeldSlot): void {
    this.#deps.caller.drop(reason, slot);
  }

  /** Blocks the models of events that a slot leaves undone. */
  blockUndone(slot: HeldSlot): Promise<void> {
    return this.#events.blockUndone(slot);
  }

  /** Abandons the calls for a slot that was lost, or every call. */
  drop(reason: unknown, slot?: HeldSlot): void {
    this.#deps.caller.drop(reason, slot);
    this.leave((each) => slot === undefined || each === slot);
    if (slot !== undefined)
      for (const recovery of slot.blocked.values())
        this.unfinished.setAside(slot, eventsOf(recovery.drop()), -1);
    this.#queues.resume();
  }

  /** Ends retries that wait for capacity, so that no caller waits for one that is not tried here, or not now. */
  #leaveRetries(isOff: (slot: HeldSlot) => boolean): void {
    for (const { onEnded } of this.#queues.removeRetries(isOff)) onEnded('untried');
  }

  #leaveKept(slot: HeldSlot, kept: readonly EventWork[]): void {
    this.unfinished.setAside(slot, eventsOf(kept), -1);
    finish(kept);
  }

  #queue(works: readonly EventWork[]): void {
    this.unfinished.count(works, 1);
    for (const work of works) this.#queues.add(this.#keyOf(work.event), work);
  }

  #keyOf(event: DeliverableEvent): string {
    return this.#deps.policy.batches ? `${event.slot}` : modelKey(event);
  }

  /** Tries a head, or handles events. */
  #step(queue: KeyedQueue): Promise<void> {
    this.#leaveDrained(queue);
    const retry = isTurnOfRetries(queue) ? queue.retries.shift() : undefined;
    queue.hasRetried = retry !== undefined;
    return retry === undefined ? this.#runEvents(queue) : this.#runRetry(retry);
  }

  async #runRetry(work: RetryWork): Promise<void> {
    let end: AttemptEnd = 'left';
    try {
      end = await this.retries.run(work);
    } finally {
      work.onEnded(end);
    }
  }

  /** Drops drained events of a slot that is being left: the row of their model says that they are not done. */
  #leaveDrained(queue: KeyedQueue): void {
    // All works of a queue are in one slot. If it was lost and gained again, those from before are first.
    if (queue.events[0]?.slot.isLeaving !== true) return;
    const drained = queue.events.filter(isDrainedLate);
    queue.events = queue.events.filter((work) => !isDrainedLate(work));
    this.unfinished.count(drained, -1);
    this.#events.leaveUndone(drained);
  }

  async #runEvents(queue: KeyedQueue): Promise<void> {
    const waited = this.#waiting.get(queue);
    const works = takeFirst(queue.events, waited ?? this.#events.takeMax, bytesOf);
    // The queue counts as waiting until the batch has succeeded: otherwise each attempt would let more of its slot be read.
    if (waited !== undefined) this.#waiting.set(queue, { ...waited, isTried: true });
    let left: PendingRetry | undefined;
    try {
      left = await this.#events.run(works, (waited?.attempt ?? 0) + 1);
    } finally {
      // This includes abandoned calls: the next holder of their slot reads the events again.
      this.#waiting.delete(queue);
      this.unfinished.count(works, -1);
      if (this.#deps.context.ended.aborted) this.#events.leaveUndone(works);
      if (left !== undefined) this.#putBack(queue, left, waited);
      if (waited !== undefined) this.#onRoom();
    }
  }

  /** Tries the same events again, after a while if there is a wait; meanwhile only their slot waits. */
  #putBack(queue: KeyedQueue, { works, slot, waitMs }: PendingRetry, waited: Waiting | undefined): void {
    this.unfinished.count(works, 1);
    queue.events = [...works, ...queue.events];
    if (slot.isLeaving) return this.leave((each) => each === slot);
    const { attempt = 0 } = waited ?? {};
    const waiting = { slot, count: works.length, isTried: false };
    if (waitMs === undefined) {
      if (waited !== undefined) this.#waiting.set(queue, { ...waiting, attempt });
      return;
    }
    this.#waiting.set(queue, { ...waiting, attempt: attempt + 1 });
    void this.#queues.holdUntil(queue, this.#deps.context.clock.sleep(waitMs, slot.leaving));
    this.#onRoom();
  }
}

/** Events of one slot that failed together. */
interface Waiting {
  readonly slot: HeldSlot;
  readonly count: number;
  /** How often the events were tried. */
  readonly attempt: number;
  /** Whether they are being tried again, and so are in no queue. */
  readonly isTried: boolean;
}

/** The bytes of an event that is to be handled. */
function bytesOf(work: EventWork): number | undefined {
  return isLeft(work) ? undefined : (work.event.bytes ?? 0);
}

/** Whether an event was read for a blocked model of a slot that is being left. */
function isDrainedLate({ slot, batch }: EventWork): boolean {
  return batch !== undefined && slot.isLeaving;
}

function eventsOf(works: readonly EventWork[]): readonly DeliverableEvent[] {
  return works.map(({ event }) => event);
}

import type { DeliverableEvent } from '@framework/core/adapter';

import { askedMaxMs } from '../call/attempt-failure.js';
import { HandlerCaller } from '../call/handler-caller.js';
import type { DatabaseHandler } from '../handler/event-handler-registry.js';
import { EventStep, type LeftEvents, finish, isLeft } from './event-step.js';
import { type KeyedQueue, KeyedQueues, isTurnOfRetries, takeEvents } from './keyed-queue.js';
import { type AttemptEnd, RetryStep, type RetryWork } from './retry-step.js';
import {
  type HandlerDependencies,
  type SubscriptionDependencies,
  handlerPolicy,
  wantsEvent,
} from './subscription-dependencies.js';
import { type Load, UnfinishedEvents, loadOf, nothing } from './unfinished-events.js';
import {
  type EventWork,
  type HeldSlot,
  type ModelRecovery,
  leaveBatches,
  modelKey,
} from '../slots/held-slot.js';

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
    this.unfinished = new UnfinishedEvents({
      settings: context.settings,
      waiting: () => [...this.#waiting].map(waitingLoad),
      onRoom,
    });
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
      this.unfinished.count([work], 1);
      this.#queues.add(this.#keyOf(event), work);
      isQueued = true;
    }
    if (!more) this.#queues.resume();
    else if (isQueued && !this.#startsSoon) this.#startSoon();
  }

  /** Handles drained events in order, behind earlier ones of their model. */
  drain(works: readonly EventWork[]): void {
    this.unfinished.count(works, 1);
    for (const work of works) this.#queues.add(this.#keyOf(work.event), work);
    this.#queues.resume();
  }

  /** Opens a model, and continues with the events that were kept until then. */
  open(model: ModelRecovery): void {
    const { done, next } = model.open(this.#deps.reader.generation);
    this.unfinished.setAside(model.slot, eventsOf([...done, ...next]), -1);
    finish(done);
    this.unfinished.count(next, 1);
    for (const work of next) this.#queues.add(this.#keyOf(work.event), work);
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
    for (const [queue, { slot, tried }] of this.#waiting)
      if (tried === nothing && isOff(slot)) this.#waiting.delete(queue);
    const left = this.#queues.removeEvents(isOff);
    this.unfinished.count(left, -1);
    leaveBatches(left);
  }

  /** Resolves when no work is left. */
  idle(): Promise<void> {
    return this.#queues.idle();
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

  #keyOf(event: DeliverableEvent): string {
    return this.#deps.policy.batches ? `${event.slot}` : modelKey(event);
  }

  /** Tries a head, or handles events. */
  #step(queue: KeyedQueue): Promise<void> {
    this.#leaveDrained(queue);
    const retry = isTurnOfRetries(queue) ? queue.retries.shift() : undefined;
    queue.hasRetried = retry !== undefined;
    if (retry !== undefined) return this.#runRetry(retry);
    const [first] = queue.events;
    return first === undefined ? Promise.resolve() : this.#runEvents(first, queue);
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
    leaveBatches(drained);
  }

  #startSoon(): void {
    this.#startsSoon = true;
    this.#deps.context.clock.after(0, () => {
      this.#startsSoon = false;
      this.#queues.resume();
    });
  }

  async #runEvents(first: EventWork, queue: KeyedQueue): Promise<void> {
    const waited = this.#waiting.get(queue);
    const works = takeEvents(queue, waited ?? this.#events.takeMax, isLeft);
    // The queue counts as waiting until the batch has succeeded: otherwise each attempt would let more of its slot be read.
    if (waited !== undefined) this.#waiting.set(queue, { ...waited, tried: loadOf(works) });
    const attempt = (waited?.attempt ?? 0) + 1;
    let left: LeftEvents | undefined;
    try {
      left = await this.#events.run(works, attempt);
    } finally {
      // This includes abandoned calls: the next holder of their slot reads the events again.
      this.#waiting.delete(queue);
      this.unfinished.count(works, -1);
      if (this.#deps.context.ended.aborted) leaveBatches(works);
      if (left !== undefined) this.unfinished.count(left.works, 1);
      if (left !== undefined) {
        queue.events = [...left.works, ...queue.events];
        const together = { slot: first.slot, count: left.works.length, tried: nothing };
        if (first.slot.isLeaving) {
          this.leave((slot) => slot === first.slot);
        } else if (left.waitMs === undefined) {
          if (waited !== undefined) this.#waiting.set(queue, { ...waited, ...together });
        } else {
          this.#wait(queue, left, { ...together, attempt }, left.waitMs);
        }
      }
      if (waited !== undefined) this.#onRoom();
    }
  }

  /** Retries the same events after a while; meanwhile only their slot waits. */
  #wait(queue: KeyedQueue, { works }: LeftEvents, waiting: Waiting, waitMs: number): void {
    const { clock } = this.#deps.context;
    const ends = works.map(({ slot }) => slot.leaving);
    this.#waiting.set(queue, waiting);
    void this.#queues.holdUntil(queue, clock.sleep(waitMs, AbortSignal.any([...new Set(ends)])));
    this.#onRoom();
  }
}

/** Events of one slot that failed together. */
interface Waiting {
  readonly slot: HeldSlot;
  readonly count: number;
  /** How often the events were tried. */
  readonly attempt: number;
  /** The ones that are being tried again, and so are in no queue. */
  readonly tried: Load;
}

function waitingLoad([{ events }, { slot, tried }]: readonly [KeyedQueue, Waiting]): Load & {
  readonly slot: HeldSlot;
} {
  const { count, bytes } = loadOf(events);
  return { slot, count: count + tried.count, bytes: bytes + tried.bytes };
}

/** Whether an event was read for a blocked model of a slot that is being left. */
function isDrainedLate({ slot, batch }: EventWork): boolean {
  return batch !== undefined && slot.isLeaving;
}

function eventsOf(works: readonly EventWork[]): readonly DeliverableEvent[] {
  return works.map(({ event }) => event);
}

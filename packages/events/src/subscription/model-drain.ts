import {
  type BlockedMove,
  type DeliverableEvent,
  type ModelPosition,
  positionAfter,
} from '@framework/core/adapter';

import { eventBytesMax } from '../delivery-settings.js';
import type { DrainedBatch, ModelRecovery } from '../slots/held-slot.js';
import { StoreBackoff } from '../worker-context.js';
import type { EventDispatch } from './event-dispatch.js';
import type { SubscriptionDependencies } from './subscription-dependencies.js';

/** How many models one statement reads at most; each gets an equal part of what may be read. */
const modelsMax = 100;

/** How many statements read at the same time, so that one is executed while the events of the other are handled. */
const readsMax = 2;

/** Handles drained events, and those that were kept until their model is open. */
type Drained = Pick<EventDispatch, 'unfinished' | 'waitingSlots' | 'wants' | 'drain' | 'open' | 'leaveModel'>;

/** Drains the blocked models of one handler: reads the events behind their heads from the log, and lets them be handled. */
export class ModelDrain {
  readonly #deps: SubscriptionDependencies;
  readonly #drained: Drained;
  readonly #reads: ModelReads;

  constructor(deps: SubscriptionDependencies, drained: Drained) {
    this.#deps = deps;
    this.#drained = drained;
    this.#reads = new ModelReads(deps, drained);
  }

  /** Reads on, because less is unfinished now. */
  onRoom(): void {
    this.#reads.wake();
  }

  /**
   * Drains a model, until nothing waits in it, one of its events fails, or the slot is lost. The row moves once per batch; the next
   * batch is read while one is handled.
   */
  async run(recovery: ModelRecovery): Promise<void> {
    const { slot } = recovery;
    if (await this.#isDrained(recovery)) {
      const isEnded = await this.#deps.writes.move.add(slot, { ...moveOf(recovery), ends: true });
      if (isEnded && slot.held) this.#drained.open(recovery);
    } else {
      // What is done stays done for the next holder of the slot.
      await this.#deps.writes.move.add(slot, moveOf(recovery));
      // What it has kept would hold up the cursor.
      const isInterrupted = recovery.phase !== 'draining' && recovery.phase !== 'joining';
      if (slot.held && !isInterrupted) this.#drained.leaveModel(recovery);
    }
  }

  /** @returns whether nothing is left; otherwise one of the events has failed, or the slot is being left or is lost */
  async #isDrained(recovery: ModelRecovery): Promise<boolean> {
    const { clock, settings } = this.#deps.context;
    const { slot } = recovery;
    let earlier = Promise.resolve(true);
    let isEmpty = false;
    let next = recovery.position;
    let reading: Promise<ModelRead | undefined> | undefined;
    try {
      for (;;) {
        const read = await (reading ?? this.#reads.read(recovery));
        reading = undefined;
        if (read === undefined || slot.isLeaving) {
          this.#release(recovery, read);
          return (await earlier) && false;
        }
        const { events, hasMore } = read;
        const last = events.at(-1);
        if (last !== undefined) next = positionAfter(last);
        // The next batch is read while this one waits for the one before it, and while it is handled.
        if (hasMore) reading = this.#reads.read(recovery, next);
        const mayHandle = await earlier;
        // Handlers that need no event loop would keep the statement from being sent until they are through with the batch.
        if (reading !== undefined) await new Promise<void>((resolve) => clock.after(0, resolve));
        this.#release(recovery, read);
        if (!mayHandle) return false;
        earlier = this.#handleAndMove(recovery, read, next);
        if (hasMore) continue;
        if (!(await earlier)) return false;
        if (recovery.hasCaughtUp || (isEmpty && last === undefined)) return true;
        // What a source streams may be visible in the log a little later.
        isEmpty = last === undefined;
        if (isEmpty) await clock.sleep(settings.pollMinMs, slot.leaving);
      }
    } finally {
      void reading?.then((read) => this.#release(recovery, read));
    }
  }

  /** Counts what was read no more as read ahead: it is handled now, or not at all. */
  #release({ slot }: ModelRecovery, read: ModelRead | undefined): void {
    if (read !== undefined) this.#drained.unfinished.setAside(slot, read.events, -1);
  }

  /** Resolves when all events are done, and the model is behind them: with false if one has failed, or the slot is lost. */
  async #handleAndMove(
    recovery: ModelRecovery,
    { events, hasMore }: ModelRead,
    next: ModelPosition,
  ): Promise<boolean> {
    if (!(await this.#handle(recovery, events, hasMore))) return false;
    recovery.position = next;
    recovery.pass(events);
    if (events.length > 0 && (hasMore || !recovery.hasCaughtUp))
      void this.#deps.writes.move.add(recovery.slot, moveOf(recovery));
    return true;
  }

  /** Resolves when all events are done: with false if one has failed, or the slot is lost. */
  #handle(recovery: ModelRecovery, events: readonly DeliverableEvent[], hasMore: boolean): Promise<boolean> {
    const wanted = events.filter((event) => this.#drained.wants(event) && !recovery.isDone(event.id));
    return new Promise((onEnded) => {
      const batch: DrainedBatch = { events, unfinishedCount: wanted.length, isLeft: false, onEnded };
      recovery.drain(batch, hasMore);
      if (wanted.length === 0) onEnded(true);
      const { slot } = recovery;
      const works = wanted.map((event) => {
        const onFinished = (): void => {
          // What is done stays done, even if the rest of the batch is left.
          if (recovery.admits({ batch })) recovery.position = positionAfter(event);
          if (--batch.unfinishedCount === 0) onEnded(!batch.isLeft);
        };
        return { event, slot, batch, onFinished };
      });
      this.#drained.drain(works);
    });
  }
}

/** The row of a model at its present position. */
export function moveOf({ leased, position }: ModelRecovery): BlockedMove {
  return { ...leased, position, ends: false };
}

/** The events of a model from a position on; whether there may be more. */
interface ModelRead {
  readonly events: readonly DeliverableEvent[];
  readonly hasMore: boolean;
}

interface ReadRequest {
  readonly recovery: ModelRecovery;
  readonly position: ModelPosition;
  readonly answer: (read: ModelRead | undefined) => void;
}

/** Reads blocked models, many with one statement, while there is room for their events. */
class ModelReads {
  readonly #deps: SubscriptionDependencies;
  readonly #drained: Drained;
  readonly #requests: ReadRequest[] = [];
  #readCount = 0;

  constructor(deps: SubscriptionDependencies, drained: Drained) {
    this.#deps = deps;
    this.#drained = drained;
  }

  /** Reads on if nothing is being read, because there is room, or a slot is being left. */
  wake(): void {
    if (this.#requests.length > 0 && this.#readCount === 0) void this.#readAll();
  }

  /** Reads on from a position; `undefined` when the slot is being left or is lost before that. */
  read(recovery: ModelRecovery, position = recovery.position): Promise<ModelRead | undefined> {
    return new Promise((answer) => {
      this.#requests.push({ recovery, position, answer });
      if (this.#readCount < readsMax) void this.#readAll();
    });
  }

  async #readAll(): Promise<void> {
    this.#readCount++;
    const { settings, stopping, onError } = this.#deps.context;
    const backoff = new StoreBackoff(this.#deps.context);
    // Requests from the same turn of the event loop are combined.
    await Promise.resolve();
    for (let asked = this.#takeRequests(); asked.length > 0; asked = this.#takeRequests()) {
      const limit = Math.max(1, Math.floor(settings.readMax / asked.length));
      try {
        const models = asked.map(({ recovery: { leased }, position }) => ({ ...leased, position }));
        const found = await this.#drained.unfinished.reading(() =>
          this.#deps.blocked.read(models, limit, eventBytesMax(settings)),
        );
        backoff.succeeded();
        for (const [index, { recovery, answer }] of asked.entries()) {
          const readMax = Math.min(limit, recovery.readMax);
          const events = (found[index] ?? []).slice(0, readMax);
          this.#drained.unfinished.setAside(recovery.slot, events, 1);
          answer({ events, hasMore: events.length === readMax });
        }
      } catch (error) {
        onError(error);
        this.#requests.unshift(...asked);
        await backoff.failed(stopping);
      }
    }
    this.#readCount--;
  }

  /**
   * The next requests; only those of models that keep what is read from their slot while there is no room for others, or their slot waits.
   */
  #takeRequests(): readonly ReadRequest[] {
    const { unfinished, waitingSlots: waiting } = this.#drained;
    const mayRead = ({ phase, slot }: ModelRecovery): boolean =>
      phase === 'joining' || (!waiting.has(slot) && unfinished.admits(slot));
    const taken: ReadRequest[] = [];
    for (const request of this.#requests.splice(0)) {
      const { recovery, answer } = request;
      if (recovery.slot.isLeaving) answer(undefined);
      else if (taken.length < modelsMax && mayRead(recovery)) taken.push(request);
      else this.#requests.push(request);
    }
    return taken;
  }
}

import {
  type BlockedHead,
  type BlockedModel,
  type Cursor,
  type DeliverableEvent,
  type ModelPosition,
  positionAfter,
} from '@framework/core/adapter';

import { eventBytesMax } from '../delivery-settings.js';
import type { DatabaseHandler } from '../handler/event-handler-registry.js';
import { StoreBackoff, WakeSignal } from '../worker-context.js';
import { EventDispatch } from './event-dispatch.js';
import type { ReadBatch } from './log-reader.js';
import { ModelDrain, moveOf } from './model-drain.js';
import { holdSuspects } from './quarantine.js';
import type { SubscriptionDependencies } from './subscription-dependencies.js';
import { type SlotPosition, SubscriptionSlots, groupPositions } from './subscription-slots.js';
import type { AttemptEnd, DoneAttempt, Trial } from './retry-step.js';
import { shareOf } from './unfinished-events.js';
import { type HeldSlot, ModelRecovery, modelKey } from '../slots/held-slot.js';

/*
 * A subscription is one handler's delivery from one database, in the slots that this process holds for it.
 *
 * The states of a slot, from gained to lost; when it is lost, its next holder begins at the saved cursor:
 *
 *   gained ──▶ open ◀──────────────────────────── no suspect is left to be tried ─┐
 *     │                                                                           │
 *     └─ its holder died ──────▶ entering-quarantine ─ the models of all suspects are blocked ─▶ in-quarantine
 *
 * The states of a model; the cursor of the slot passes events that are done, and those that are left in the log because their model is
 * blocked:
 *
 *   open ─ an event fails ─▶ blocked at that event ─ is due ─▶ its head is tried ─ done ─▶ draining ─ nothing is left ─▶ open
 *                                 ▲        ▲                         │                       │
 *                                 │        └─ fails: later, or as a dead letter ◀────────────┘ an event fails: it is the head now
 *                                 └─ an operator replays or skips a dead letter
 *
 * The files that do this, one after the other, are in `docs/architecture.md`.
 */

/** Delivers the events of one database to one handler, at its own pace: no other handler waits for it. */
export class Subscription {
  readonly slots: SubscriptionSlots;
  readonly dispatch: EventDispatch;
  readonly #deps: SubscriptionDependencies;
  readonly #handler: DatabaseHandler;
  readonly #wakeSignal: WakeSignal;
  readonly #drain: ModelDrain;
  #readCount = 0;
  #stopped = false;

  constructor(handler: DatabaseHandler, deps: SubscriptionDependencies) {
    const { context, saver } = deps;
    const wake = (): void => this.wake();
    this.#deps = deps;
    this.#handler = handler;
    this.#wakeSignal = new WakeSignal(context.clock);
    const repeats = handler.options.whenProcessDies === 'repeat';
    this.slots = new SubscriptionSlots({
      saver,
      quarantines: !repeats,
      onReadable: wake,
    });
    this.dispatch = new EventDispatch(handler, deps, () => {
      wake();
      this.#drain.onRoom();
    });
    this.#drain = new ModelDrain(deps, this.dispatch);
  }

  /** All names that the handler has in this process. */
  get names(): readonly string[] {
    const { name, options } = this.#handler;
    return [name, ...(options.aliases ?? [])];
  }

  get paused(): boolean {
    return this.dispatch.paused;
  }

  /** Works on a slot that this process holds now, until the slot is lost. */
  gain(
    slot: HeldSlot,
    cursor: Cursor,
    models: readonly (BlockedModel & Pick<BlockedHead, 'hasFailed'>)[],
  ): void {
    // Those that were being handled, and those that were read next.
    const suspectsMax = this.slots.quarantines(slot) ? 2 * this.#deps.context.settings.readMax : 0;
    for (const model of models) {
      // The previous holder may have been trying the head or, if it has not failed, what follows.
      const suspectCount = model.hasFailed ? Math.min(1, suspectsMax) : suspectsMax;
      slot.blocked.set(modelKey(model), new ModelRecovery(slot, model, 'waiting', suspectCount));
    }
    this.slots.gain(slot, cursor);
    slot.lost.addEventListener('abort', () => this.dispatch.drop(slot.lost.reason, slot));
  }

  /**
   * Takes a model that is due; `undefined` if it is being worked on already. One that this process does not know as blocked was
   * blocked by a statement that arrived late: its events are delivered again.
   */
  take(slot: HeldSlot, head: BlockedHead): ModelRecovery | undefined {
    const model = slot.recoveryOf(head, 'waiting');
    return model.take(head) ? model : undefined;
  }

  /** Tries the head of a blocked model, unless the model only has to be read on; resolves when the attempt has ended. */
  async tryHead(trial: Trial, model: ModelRecovery, alone: AbortSignal | undefined): Promise<AttemptEnd> {
    const { event, hasFailed, openCount, position } = trial.head;
    const isTried = hasFailed || model.suspectCount > 0 || openCount > 0;
    if (event === undefined || model.isDone(event.id) || !isTried)
      return { attempt: undefined, startedMs: this.#deps.watch.now(), position, count: 0 };
    const end = await this.dispatch.retry({ ...trial, head: { ...trial.head, event }, model, alone });
    if (end === 'failed') {
      model.hasFailed = true;
      this.slots.tried(model);
    }
    if (end === 'untried') await this.leaveModel(model);
    else if (end === 'failed' || end === 'left') model.wait();
    else model.position = end.position;
    return end;
  }

  /** Moves a model behind what was tried in a recorded attempt, and is done; returns false if the slot is lost. */
  async passHead({ head }: Trial, model: ModelRecovery, done: DoneAttempt): Promise<boolean> {
    model.suspectCount = head.event === undefined ? 0 : Math.max(0, model.suspectCount - done.count);
    if (done.attempt === undefined) return true;
    const keepsAttempts = model.suspectCount > 0 && !this.paused && !model.slot.isLeaving;
    model.attempt = keepsAttempts ? done.attempt : undefined;
    // At once, because the call may have stopped the event loop for so long that the lease is about to end.
    if (await this.#deps.writes.move.add(model.slot, { ...moveOf(model), keepsAttempts })) return true;
    await this.dispatch.retries.endUnrecorded(head, done);
    return false;
  }

  /** The next suspects of a model whose head is done, to be tried like a head; `undefined` if there are none, or the log could not be read. */
  async nextSuspects(model: ModelRecovery): Promise<Trial | undefined> {
    const { context, blocked, watch } = this.#deps;
    if (model.suspectCount === 0) return undefined;
    const { leased, position, doneIds } = model;
    try {
      const bytesMax = eventBytesMax(context.settings);
      const read = async (from: ModelPosition): Promise<readonly DeliverableEvent[]> => {
        const [events = []] = await blocked.read(
          [{ ...leased, position: from }],
          model.suspectsMax,
          bytesMax,
        );
        const last = events.at(-1);
        const left = events.filter(({ id }) => !model.isDone(id));
        return left.length === 0 && last !== undefined ? read(positionAfter(last)) : left;
      };
      const [event, ...behind] = await read(position);
      if (event === undefined) model.suspectCount = 0;
      const untried = { attempts: 0, uncounted: 0, openCount: 0, hasFailed: false };
      return (
        event && { head: { ...leased, ...untried, position, event, doneIds }, behind, readMs: watch.now() }
      );
    } catch (error) {
      context.onError(error);
      return undefined;
    }
  }

  /** Drains what waits behind the head of a model; if there are suspects, these are left to the next round. */
  async drain(model: ModelRecovery): Promise<void> {
    if (model.suspectCount > 0) return this.leaveModel(model);
    const { attempt } = model;
    this.slots.tried(model);
    await this.#drain.run(model);
    // It has not moved, and so not ended the attempt, if the slot was left at once.
    if (attempt !== undefined && model.slot.isLeaving)
      await this.dispatch.retries.giveBack(model.leased, attempt);
  }

  /** Leaves a model to a later round or another process. Takes back an attempt that is open for it, because that would mean a death. */
  async leaveModel(model: ModelRecovery): Promise<void> {
    const { leased, attempt } = model;
    this.dispatch.leaveModel(model);
    if (attempt !== undefined) await this.dispatch.retries.giveBack(leased, attempt);
  }

  setPaused(paused: boolean): void {
    this.dispatch.setPaused(paused);
    this.#wakeSignal.wake();
  }

  /** Polls the log, because something may have been committed. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /** Reads and dispatches events until it is stopped. */
  async run(): Promise<void> {
    const { context } = this.#deps;
    const backoff = new StoreBackoff(context);
    while (!this.#stopped) {
      const groups = groupPositions(this.#readable()).slice(0, this.dispatch.unfinished.readRoom);
      if (groups.length === 0) {
        await this.#wakeSignal.wait();
        continue;
      }
      await backoff.tried(() => allEnded(groups.map((group) => this.#advance(group))), context.ended);
    }
  }

  /** Begins nothing new in slots that are being left; events that were read continue, unless the handler is paused. */
  leave(): void {
    this.dispatch.setPaused(this.paused);
    this.#drain.onRoom();
  }

  /**
   * Records what a slot that is given back, or every slot, leaves undone, if events behind it are done: its next holder gets the models of
   * the undone events as blocked ones, and nothing that is done again. A slot in which a call has not ended is left as it is: which event of
   * its model is the first undone one is not certain yet.
   */
  async recordUndone(slot?: HeldSlot): Promise<void> {
    const left = this.slots.withDoneBehind.filter((each) => slot === undefined || each === slot);
    const slots = left.filter(({ isIdle }) => isIdle);
    await allEnded(slots.map((each) => this.dispatch.blockUndone(each)));
  }

  /** Reads nothing more in any slot. */
  stop(): void {
    this.#stopped = true;
    this.leave();
    this.#wakeSignal.wake();
  }

  #readable(): readonly SlotPosition[] {
    const { reader, saver, context } = this.#deps;
    const { unfinished, waitingSlots: waiting } = this.dispatch;
    if (this.paused || unfinished.readRoom === 0) return [];
    const { unsavedMax } = context.settings;
    const areUnsaved = this.slots.unsavedCount(waiting) >= unsavedMax;
    if (areUnsaved) saver.flushSoon();
    return this.slots
      .readable(reader.generation)
      .filter(
        ({ slot, unsavedCount }) =>
          !waiting.has(slot) &&
          unfinished.admits(slot) &&
          (!areUnsaved || unsavedCount < shareOf(unsavedMax)),
      );
  }

  async #advance(group: readonly SlotPosition[]): Promise<void> {
    const [first] = group;
    if (first === undefined) return;
    const slots = group.map(({ slot }) => slot.slot);
    const turn = ++this.#readCount;
    for (const position of group) position.turn = turn;
    const batch = await this.dispatch.unfinished.reading(() => this.#deps.reader.read(slots, first.cursor));
    const wanted = batch.events.filter((event) => this.dispatch.wants(event));
    const bySlot = Map.groupBy(wanted, ({ slot }) => slot);
    await allEnded(
      group.map((position) => this.#pass(position, batch, bySlot.get(position.slot.slot) ?? [])),
    );
    if (batch.more) return;
    const generation = this.#handler.options.source === undefined ? batch.generation : undefined;
    for (const { slot } of group) for (const model of slot.opened) model.forget(generation);
  }

  /**
   * Moves one slot beyond a batch, unless the slot is being left or the handler stopped while the batch was read: earlier events of
   * the slot may have been left undone.
   */
  async #pass(position: SlotPosition, batch: ReadBatch, events: readonly DeliverableEvent[]): Promise<void> {
    const { context, writes, saver, onBlocked } = this.#deps;
    const { slot } = position;
    const { next, more, generation, partial = false } = batch;
    if (slot.isLeaving || this.#stopped) return;
    const isEntering = position.phase === 'entering-quarantine';
    if (isEntering) {
      const suspects = await holdSuspects(slot, events, writes.hold);
      if (suspects === undefined) return;
      for (const model of suspects) position.suspects.add(model);
    }
    const step = position.add(next, events.length, partial);
    position.more = more;
    position.generation = generation;
    if (!isEntering) {
      return this.dispatch.handle(events, slot, { onFinished: () => position.finish(step), more });
    }
    for (const _event of events) position.finish(step);
    // A transaction is always held as a whole, however large it is: the previous holder's saved cursor was before all of it.
    // Besides what the holder may have read, it may have been reading the last batch.
    const { unsavedMax, readMax } = context.settings;
    if (!partial) this.slots.entered(position, events.length, !more, unsavedMax + 2 * readMax);
    // Before the suspects are tried: otherwise the next holder of the slot would hold events again that are done by then, as if they
    // had never been tried.
    saver.flushSoon();
    await saver.save(false).finally(onBlocked);
  }
}

/** Waits for each, even if another one fails: work that is still running depends on the present positions of its slots. */
async function allEnded(works: readonly Promise<void>[]): Promise<void> {
  const ended = await Promise.allSettled(works);
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}

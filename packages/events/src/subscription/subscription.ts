import type { Cursor, DeliverableEvent } from '@framework/core/adapter';

import { type DatabaseHandler, wantsEvent } from '../handler/event-handler-registry.js';
import type { HeldSlot } from '../slots/lease-keeper.js';
import { FlowSlots, type SlotPosition, groupPositions } from '../slots/subscription-slots.js';
import { WakeSignal } from '../wake/wake-signal.js';
import { storeBackoff } from '../worker-context.js';
import { type FlowDependencies, FlowDispatch } from './event-dispatch.js';
import { BlockedModelSet, modelKey } from './keyed-queue.js';
import type { ReadBatch } from './log-reader.js';
import { SuspectIntake } from './quarantine.js';

/** Delivers the events of one database to one handler, at its own pace: no other handler waits for it. */
export class HandlerFlow {
  readonly slots: FlowSlots;
  readonly dispatch: FlowDispatch;
  readonly #around: FlowDependencies;
  readonly #handler: DatabaseHandler;
  readonly #wakeSignal: WakeSignal;
  readonly #suspects: SuspectIntake;
  readonly #blocked = new BlockedModelSet();
  #readCount = 0;
  #paused = false;
  #stopped = false;

  constructor(handler: DatabaseHandler, around: FlowDependencies) {
    const { id } = handler;
    const { context, saver, blocker } = around;
    const blocked = this.#blocked;
    const wake = (): void => this.wake();
    this.#around = around;
    this.#handler = handler;
    this.#wakeSignal = new WakeSignal(context.clock);
    this.slots = new FlowSlots({ handler: id, saver, onReadable: wake });
    this.dispatch = new FlowDispatch({ handler, around, blocked, onRoom: wake });
    this.#suspects = new SuspectIntake({
      handler: id,
      blocker,
      blocked,
      check: (event, slot) => this.dispatch.check(event, slot),
      settings: context.settings,
    });
  }

  /** All names that the handler has in this process. */
  get names(): readonly string[] {
    const { name, options } = this.#handler;
    return [name, ...(options.aliases ?? [])];
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** Whether there is anything that only a look at the blocked events can settle. */
  get waitsForBlocked(): boolean {
    return !this.#blocked.empty || this.slots.settling.length > 0;
  }

  /** Starts on a slot that this process holds now, until it is lost. */
  gain(slot: HeldSlot, cursor: Cursor, blockedModels: readonly string[]): void {
    this.#blocked.drop(slot.slot);
    for (const model of blockedModels) this.#blocked.add(slot.slot, model);
    this.slots.gain(slot, cursor);
    slot.lost.addEventListener('abort', () => this.#lose(slot));
  }

  /** Has later events of a model blocked, which has blocked events. */
  knowBlocked({ held, slot }: HeldSlot, event: DeliverableEvent): void {
    if (held) this.#blocked.add(slot, modelKey(event));
  }

  setPaused(paused: boolean): void {
    this.#paused = paused;
    this.dispatch.setPaused(paused);
    this.#wakeSignal.wake();
  }

  /** Looks at the log, because something may have been committed. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /** Reads and hands out events until it is stopped. */
  async run(): Promise<void> {
    const backoff = storeBackoff(this.#around.context);
    while (!this.#stopped) {
      const groups = groupPositions(this.#readable()).slice(0, this.dispatch.readRoom);
      if (groups.length === 0) {
        await this.#wakeSignal.wait();
        continue;
      }
      try {
        await allEnded(groups.map((group) => this.#advance(group)));
        backoff.succeeded();
      } catch (error) {
        this.#around.context.onError(error);
        await backoff.failed(this.#around.context.ended);
      }
    }
  }

  /** Reads nothing more; what was read goes on. */
  stop(): void {
    this.#stopped = true;
    // What a paused handler has read is left to whoever holds its slots next.
    this.dispatch.setPaused(this.#paused);
    this.#wakeSignal.wake();
  }

  #lose(slot: HeldSlot): void {
    this.dispatch.drop(slot.lost.reason, slot);
    this.#blocked.drop(slot.slot);
  }

  #readable(): readonly SlotPosition[] {
    const { reader, saver, context } = this.#around;
    if (this.#paused || this.dispatch.full) return [];
    const waiting = this.dispatch.waitingSlots;
    if (this.slots.unsavedCount(waiting) >= context.settings.unsavedMax) {
      saver.flushSoon();
      return [];
    }
    return this.slots.readable(reader.generation).filter(({ slot }) => !waiting.has(slot.slot));
  }

  async #advance(group: readonly SlotPosition[]): Promise<void> {
    const [first] = group;
    if (first === undefined) return;
    const slots = group.map(({ slot }) => slot.slot);
    const turn = ++this.#readCount;
    for (const position of group) position.turn = turn;
    const batch = await this.#around.reader.read(slots, first.cursor);
    const wanted = batch.events.filter((event) => this.#wants(event));
    const bySlot = Map.groupBy(wanted, ({ slot }) => slot);
    await allEnded(
      group.map((position) => this.#pass(position, batch, bySlot.get(position.slot.slot) ?? [])),
    );
  }

  /**
   * Moves one slot beyond a batch; it may have been lost while the batch was read. Where the handler stops meanwhile, the slot may
   * have been left before earlier events.
   */
  async #pass(position: SlotPosition, batch: ReadBatch, events: readonly DeliverableEvent[]): Promise<void> {
    const { slot, progress } = position;
    const { next, more, generation, partial = false } = batch;
    if (!slot.held || this.#stopped) return;
    const areSuspects = position.phase === 'careful';
    if (areSuspects && !(await this.#suspects.take(position, events, batch))) return;
    const step = progress.add(next, events.length, partial);
    position.partCount += events.length;
    if (!partial) {
      position.unsavedCount += position.partCount;
      position.partCount = 0;
    }
    position.cursor = next;
    position.more = more;
    position.generation = generation;
    if (!areSuspects) {
      return this.dispatch.handle(events, slot, { onFinished: () => progress.finish(step), more });
    }
    for (const _event of events) progress.finish(step);
    await this.#saveBlocked().finally(() => this.#around.onBlocked());
  }

  /** Before the events are tried: whoever had the slot next would block those again that are done by then, as never tried. */
  async #saveBlocked(): Promise<void> {
    const { saver } = this.#around;
    saver.flushSoon();
    await saver.save(false);
  }

  #wants({ type }: DeliverableEvent): boolean {
    return wantsEvent(this.#handler, type);
  }
}

/** Waits for each, also beside one that fails: what is still under way belongs to where its slots stand now. */
async function allEnded(works: readonly Promise<void>[]): Promise<void> {
  const ended = await Promise.allSettled(works);
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}

import type { Cursor, DeliverableEvent } from '@framework/core/adapter';

import type { DatabaseHandler } from '../handler/event-handler-registry.js';
import type { CursorSaver } from '../slots/cursor-saver.js';
import { type HeldSlot, SlotProgress } from '../slots/held-slot.js';
import { WakeSignal, storeBackoff } from '../worker-context.js';
import { type SubscriptionDependencies, EventDispatch } from './event-dispatch.js';
import { BlockedModelSet, modelKey } from './keyed-queue.js';
import type { ReadBatch } from './log-reader.js';
import { QuarantineIntake, type QuarantinePhase } from './quarantine.js';

/*
 * A subscription is one handler's delivery from one database, in the slots that this process holds for it.
 *
 * The states of a slot, from gained to lost; when it is lost, its next holder begins at the saved cursor:
 *
 *   gained ──▶ open ◀──────────────────────────── no suspect is left to be tried ─┐
 *     │                                                                           │
 *     └─ its holder died ──────▶ entering-quarantine ─ all suspects are blocked ─▶ in-quarantine
 *
 * The states of an event; the cursor passes events that are done or blocked, in order:
 *
 *   read, open slot ──▶ queued ──▶ called ──▶ done
 *                         │          └─ failed ─────────▶ blocked ─▶ is due ──▶ called ─▶ done
 *                         └─ its model has blocked ones ─▶ blocked      ▲           └─ failed ─▶ dead letter, after the last one
 *   read, slot that enters quarantine ──────────────────▶ blocked      └── later ──────┘
 *
 * This file reads, and puts slots into quarantine. `event-dispatch.ts` queues events by model; `event-step.ts` calls the handler
 * with new ones, and blocks; `retry-loop.ts` finds blocked ones that are due, and `retry-step.ts` calls the handler with those.
 */

/** Delivers the events of one database to one handler, at its own pace: no other handler waits for it. */
export class Subscription {
  readonly slots: SubscriptionSlots;
  readonly dispatch: EventDispatch;
  readonly #around: SubscriptionDependencies;
  readonly #handler: DatabaseHandler;
  readonly #wakeSignal: WakeSignal;
  readonly #intake: QuarantineIntake;
  readonly #blocked = new BlockedModelSet();
  #readCount = 0;
  #paused = false;
  #stopped = false;

  constructor(handler: DatabaseHandler, around: SubscriptionDependencies) {
    const { id } = handler;
    const { context, saver, blocker } = around;
    const blocked = this.#blocked;
    const wake = (): void => this.wake();
    this.#around = around;
    this.#handler = handler;
    this.#wakeSignal = new WakeSignal(context.clock);
    const repeats = handler.options.whenProcessDies === 'repeat';
    this.slots = new SubscriptionSlots({ handler: id, saver, quarantines: !repeats, onReadable: wake });
    this.dispatch = new EventDispatch({ handler, around, blocked, onRoom: wake });
    this.#intake = new QuarantineIntake({
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

  /** Whether anything is left that requires reading the blocked events. */
  get waitsForBlocked(): boolean {
    return !this.#blocked.empty || this.slots.inQuarantine.length > 0;
  }

  /** Works on a slot that this process holds now, until the slot is lost. */
  gain(slot: HeldSlot, cursor: Cursor, blockedModels: readonly string[]): void {
    this.#blocked.drop(slot.slot);
    for (const model of blockedModels) this.#blocked.add(slot.slot, model);
    this.slots.gain(slot, cursor);
    slot.lost.addEventListener('abort', () => this.#lose(slot));
  }

  /** Marks a model as blocked, so that its later events are blocked, too. */
  knowBlocked({ held, slot }: HeldSlot, event: DeliverableEvent): void {
    if (held) this.#blocked.add(slot, modelKey(event));
  }

  setPaused(paused: boolean): void {
    this.#paused = paused;
    this.dispatch.setPaused(paused);
    this.#wakeSignal.wake();
  }

  /** Polls the log, because something may have been committed. */
  wake(): void {
    this.#wakeSignal.wake();
  }

  /** Reads and dispatches events until it is stopped. */
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

  /** Reads nothing more; events that were read continue. */
  stop(): void {
    this.#stopped = true;
    // Events that a paused handler has read are left to the next holder of its slots.
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
    const wanted = batch.events.filter((event) => this.dispatch.wants(event));
    const bySlot = Map.groupBy(wanted, ({ slot }) => slot);
    await allEnded(
      group.map((position) => this.#pass(position, batch, bySlot.get(position.slot.slot) ?? [])),
    );
  }

  /**
   * Moves one slot beyond a batch, unless the slot was lost or the handler stopped while the batch was read: after a stop,
   * earlier events of the slot may have been left undone.
   */
  async #pass(position: SlotPosition, batch: ReadBatch, events: readonly DeliverableEvent[]): Promise<void> {
    const { slot, progress } = position;
    const { next, more, generation, partial = false } = batch;
    if (!slot.held || this.#stopped) return;
    const isEntering = position.phase === 'entering-quarantine';
    if (isEntering && !(await this.#intake.take(position, events, batch))) return;
    const step = progress.add(next, events.length, partial);
    position.partCount += events.length;
    if (!partial) {
      position.unsavedCount += position.partCount;
      position.partCount = 0;
    }
    position.cursor = next;
    position.more = more;
    position.generation = generation;
    if (!isEntering) {
      return this.dispatch.handle(events, slot, { onFinished: () => progress.finish(step), more });
    }
    for (const _event of events) progress.finish(step);
    await this.#saveBlocked().finally(() => this.#around.onBlocked());
  }

  /**
   * Saves before the events are tried: otherwise the next holder of the slot would block events again that are done by then, as
   * if they had never been tried.
   */
  async #saveBlocked(): Promise<void> {
    const { saver } = this.#around;
    saver.flushSoon();
    await saver.save(false);
  }
}

/** Waits for each, even if another one fails: work that is still running depends on the present positions of its slots. */
async function allEnded(works: readonly Promise<void>[]): Promise<void> {
  const ended = await Promise.allSettled(works);
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}

/** The positions of one handler in the slots that this process holds. */
export class SubscriptionSlots {
  readonly #handler: string;
  readonly #saver: Pick<CursorSaver, 'moved'>;
  readonly #quarantines: boolean;
  readonly #onReadable: () => void;
  readonly #positions = new Map<number, SlotPosition>();

  constructor(options: {
    readonly handler: string;
    readonly saver: Pick<CursorSaver, 'moved'>;
    /** Whether slots whose holder died enter quarantine; otherwise they are open at once. */
    readonly quarantines: boolean;
    /** Called when a slot may have become readable. */
    readonly onReadable: () => void;
  }) {
    this.#handler = options.handler;
    this.#saver = options.saver;
    this.#quarantines = options.quarantines;
    this.#onReadable = options.onReadable;
  }

  /** Whether it has started on a slot. */
  has(slot: HeldSlot): boolean {
    return this.#positions.get(slot.slot)?.slot === slot;
  }

  /** Slots whose suspects are blocked and being tried. */
  get inQuarantine(): readonly HeldSlot[] {
    return [...this.#positions.values()]
      .filter(({ phase }) => phase === 'in-quarantine')
      .map(({ slot }) => slot);
  }

  /**
   * Wanted events beyond the saved cursors.
   *
   * @param except slots whose events do not count
   */
  unsavedCount(except: ReadonlySet<number>): number {
    let count = 0;
    for (const [slot, position] of this.#positions) if (!except.has(slot)) count += position.unsavedCount;
    return count;
  }

  /** Works on a slot until it is lost. */
  gain(slot: HeldSlot, cursor: Cursor): void {
    const handler = this.#handler;
    const onSaved = (wantedCount: number): void => {
      position.unsavedCount -= wantedCount;
      this.#onReadable();
    };
    const position: SlotPosition = {
      slot,
      progress: new SlotProgress((moved, wantedCount) =>
        this.#saver.moved({ handler, slot, cursor: moved, wantedCount, onSaved }),
      ),
      phase: slot.abandoned && this.#quarantines ? 'entering-quarantine' : 'open',
      cursor,
      turn: 0,
      generation: -1,
      more: true,
      unsavedCount: 0,
      partCount: 0,
      quarantinedCount: 0,
    };
    this.#positions.set(slot.slot, position);
    slot.lost.addEventListener('abort', () => this.#lose(position));
    this.#onReadable();
  }

  /** Reads on in a slot that has no suspect left that could be tried now. */
  released(slot: HeldSlot): void {
    const position = this.#positions.get(slot.slot);
    if (position?.slot !== slot || position.phase !== 'in-quarantine') return;
    position.phase = 'open';
    this.#onReadable();
  }

  /** The slots that may have something to read, given how much is known about commits. */
  readable(generation: number): readonly SlotPosition[] {
    return [...this.#positions.values()].filter(
      (position) => position.phase !== 'in-quarantine' && (position.more || position.generation < generation),
    );
  }

  #lose(position: SlotPosition): void {
    const { slot } = position.slot;
    if (this.#positions.get(slot) === position) this.#positions.delete(slot);
  }
}

/** The position of one handler in one slot that this process holds. */
export interface SlotPosition {
  readonly slot: HeldSlot;
  readonly progress: SlotProgress;
  phase: QuarantinePhase;
  /** How far the log has been read; the saved cursor is at or before this. */
  cursor: Cursor;
  /** The number of the handler's last read there, from 1; 0 before that. */
  turn: number;
  /** What was known about commits when it was last read; -1 before that. */
  generation: number;
  /** Whether more had already been committed when it was last read. */
  more: boolean;
  /**
   * Wanted events beyond the saved cursor, except those of a transaction that is not completely read: these cannot be saved yet.
   */
  unsavedCount: number;
  /** Wanted events that were read of a transaction that is not completely read. */
  partCount: number;
  /** Wanted events that were blocked because the previous holder died. */
  quarantinedCount: number;
}

/**
 * Positions that one read serves: equal cursors and phases, in the order of slots. Those that have waited longest for a read come
 * first, so that a long backlog of some slots does not keep the others from being read.
 */
export function groupPositions(positions: Iterable<SlotPosition>): readonly (readonly SlotPosition[])[] {
  const sorted = [...positions].sort((one, other) => one.slot.slot - other.slot.slot);
  const groups = [...Map.groupBy(sorted, ({ phase, cursor }) => `${phase} ${cursor}`).values()];
  return groups.sort((one, other) => lastTurn(one) - lastTurn(other));
}

function lastTurn(group: readonly SlotPosition[]): number {
  return Math.min(...group.map(({ turn }) => turn));
}

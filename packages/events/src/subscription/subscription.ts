import type { Cursor, DeliverableEvent } from '@framework/core/adapter';

import type { DatabaseHandler } from '../handler/event-handler-registry.js';
import { type CursorSaver, type HeldSlot, SlotProgress } from '../slots/cursor-saver.js';
import { WakeSignal, storeBackoff } from '../worker-context.js';
import { type SubscriptionDependencies, EventDispatch } from './event-dispatch.js';
import { BlockedModelSet, modelKey } from './keyed-queue.js';
import type { ReadBatch } from './log-reader.js';
import { QuarantineIntake, type QuarantinePhase } from './quarantine.js';

/*
 * A subscription is one handler's delivery from one database, in the slots that this process holds for it.
 *
 * The states of a slot, from gained to lost; one that is lost is left as it is, and its next holder begins at the saved cursor:
 *
 *   gained ──▶ open ◀──────────────────────────── no suspect is left to be tried ─┐
 *     │                                                                           │
 *     └─ its holder vanished ─▶ entering-quarantine ─ all suspects are blocked ─▶ in-quarantine
 *
 * The states of an event; the cursor passes what is done or blocked, in order:
 *
 *   read, open slot ──▶ queued ──▶ called ──▶ done
 *                         │          └─ failed ─────────▶ blocked ─▶ its turn ─▶ called ─▶ done
 *                         └─ its model has blocked ones ─▶ blocked      ▲           └─ failed ─▶ dead letter, at the last
 *   read, slot that enters quarantine ──────────────────▶ blocked      └── later ──────┘
 *
 * Here is what reads, and a slot's quarantine. `event-dispatch.ts` queues by model; `event-step.ts` calls what is new, and blocks;
 * `retry-loop.ts` finds whose turn it is, and `retry-step.ts` calls that.
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
    this.slots = new SubscriptionSlots({ handler: id, saver, onReadable: wake });
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

  /** Whether there is anything that only a look at the blocked events can settle. */
  get waitsForBlocked(): boolean {
    return !this.#blocked.empty || this.slots.inQuarantine.length > 0;
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
    const wanted = batch.events.filter((event) => this.dispatch.wants(event));
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

  /** Before the events are tried: whoever had the slot next would block those again that are done by then, as never tried. */
  async #saveBlocked(): Promise<void> {
    const { saver } = this.#around;
    saver.flushSoon();
    await saver.save(false);
  }
}

/** Waits for each, also beside one that fails: what is still under way belongs to where its slots stand now. */
async function allEnded(works: readonly Promise<void>[]): Promise<void> {
  const ended = await Promise.allSettled(works);
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}

/** Where one handler stands in the slots that this process holds. */
export class SubscriptionSlots {
  readonly #handler: string;
  readonly #saver: Pick<CursorSaver, 'moved'>;
  readonly #onReadable: () => void;
  readonly #positions = new Map<number, SlotPosition>();

  constructor(options: {
    readonly handler: string;
    readonly saver: Pick<CursorSaver, 'moved'>;
    /** Called when a slot may have become readable. */
    readonly onReadable: () => void;
  }) {
    this.#handler = options.handler;
    this.#saver = options.saver;
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

  /** Starts on a slot, until it is lost. */
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
      phase: slot.abandoned ? 'entering-quarantine' : 'open',
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

  /** Says that no suspect of a slot is left that could be tried now: it is read on. */
  released(slot: HeldSlot): void {
    const position = this.#positions.get(slot.slot);
    if (position?.slot !== slot || position.phase !== 'in-quarantine') return;
    position.phase = 'open';
    this.#onReadable();
  }

  /** Those that may have something to read, when that much is known of commits. */
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

/** Where one handler stands in one slot that this process holds. */
export interface SlotPosition {
  readonly slot: HeldSlot;
  readonly progress: SlotProgress;
  phase: QuarantinePhase;
  /** Up to where it was read; what is saved lies behind. */
  cursor: Cursor;
  /** Which read of the handler was the last one there, from 1; 0 before that. */
  turn: number;
  /** What was known of commits when it was read last; -1 before that. */
  generation: number;
  /** Whether more was committed already when it was read last. */
  more: boolean;
  /** Wanted events beyond the saved cursor, without those of a transaction that is not read to its end: these cannot be saved yet. */
  unsavedCount: number;
  /** Wanted events that were read of such a transaction. */
  partCount: number;
  /** Wanted events that were blocked because the holder before vanished. */
  quarantinedCount: number;
}

/**
 * Positions that one read serves: equal cursors and phases, in the order of slots. First those that were not read for longest, so
 * that a long backlog of some slots keeps no other one from being read.
 */
export function groupPositions(positions: Iterable<SlotPosition>): readonly (readonly SlotPosition[])[] {
  const sorted = [...positions].sort((one, other) => one.slot.slot - other.slot.slot);
  const groups = [...Map.groupBy(sorted, ({ phase, cursor }) => `${phase} ${cursor}`).values()];
  return groups.sort((one, other) => lastTurn(one) - lastTurn(other));
}

function lastTurn(group: readonly SlotPosition[]): number {
  return Math.min(...group.map(({ turn }) => turn));
}

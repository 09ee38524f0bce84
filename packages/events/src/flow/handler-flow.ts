import type { ActionExecutor, Cursor, DeliverableEvent, ParkedHead } from '@framework/core';
import { HandlerCaller } from '../call/handler-caller.js';
import type { EnvelopeFactory } from '../handler/envelope-factory.js';
import type { RegisteredHandler } from '../handler/event-handler-registry.js';
import type { HeldSlot } from '../lease/held-slot.js';
import type { CursorSaver } from '../log/cursor-saver.js';
import type { LogReader, ReadBatch } from '../log/log-reader.js';
import { SlotProgress } from '../log/slot-progress.js';
import type { ParkedCheck } from '../parked/parked-check.js';
import type { Parker } from '../parked/parker.js';
import { Alarm } from '../waking/alarm.js';
import { type WorkerContext, storeBackoff } from '../worker-context.js';
import { EventStep } from './event-step.js';
import { type FlowPolicy, flowPolicy } from './flow-policy.js';
import { type EventWork, type FlowWork, modelKey } from './flow-work.js';
import { type Lane, Lanes } from './lanes.js';
import { ParkedModelSet } from './parked-model-set.js';
import { RetryStep } from './retry-step.js';
import { type SlotPosition, groupPositions } from './slot-position.js';

const readsMax = 4;

/** What the flows of one database share. */
export interface FlowSurroundings {
  readonly context: WorkerContext;
  readonly executor: Pick<ActionExecutor, 'execute'>;
  readonly envelopes: EnvelopeFactory;
  readonly reader: LogReader;
  readonly saver: CursorSaver;
  readonly parker: Parker;
  readonly check: ParkedCheck;
  /** Called with slots that the database says are another's. */
  readonly onLost: (slots: readonly number[]) => void;
  /** Called when a parked event may be due. */
  readonly onParked: () => void;
}

/** Delivers the events of one database to one handler, at its own pace: no other handler waits for it. */
export class HandlerFlow {
  readonly name: string;
  readonly #around: FlowSurroundings;
  readonly #handler: RegisteredHandler;
  readonly #policy: FlowPolicy;
  readonly #alarm: Alarm;
  readonly #caller: HandlerCaller;
  readonly #lanes: Lanes<FlowWork>;
  readonly #events: EventStep;
  readonly #retries: RetryStep;
  readonly #parked = new ParkedModelSet();
  readonly #positions = new Map<number, SlotPosition>();
  #unfinishedCount = 0;
  #paused = false;
  #stopped = false;

  constructor(handler: RegisteredHandler, around: FlowSurroundings) {
    const { context, parker, onLost, onParked } = around;
    this.name = handler.name;
    this.#around = around;
    this.#handler = handler;
    const policy = (this.#policy = flowPolicy(handler, context.settings));
    this.#alarm = new Alarm(context.clock);
    const caller = (this.#caller = new HandlerCaller({
      handler,
      executor: around.executor,
      envelopes: around.envelopes,
      timeoutMs: policy.timeoutMs,
      clock: context.clock,
      onSettled: () => this.#lanes.resume(),
    }));
    this.#lanes = new Lanes({
      concurrency: policy.concurrency,
      mayStart: () => caller.abandonedCount < context.settings.abandonedMax,
      step: (lane) => this.#step(lane),
    });
    const parked = this.#parked;
    this.#events = new EventStep({ context, handler: this.name, policy, caller, parker, parked, onParked });
    this.#retries = new RetryStep({ context, policy, caller, onLost });
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** Whether there is anything that only a look at the parked events can settle. */
  get waitsForParked(): boolean {
    return !this.#parked.empty || [...this.#positions.values()].some(({ phase }) => phase === 'settling');
  }

  /** How many parked events may be tried at the same time, so that new ones have places left. */
  get retriesMax(): number {
    return Math.max(1, Math.floor(this.#policy.concurrency / 2));
  }

  /** Slots whose suspects are parked and being tried. */
  get settlingSlots(): readonly number[] {
    return [...this.#positions.values()]
      .filter(({ phase }) => phase === 'settling')
      .map(({ slot }) => slot.slot);
  }

  /** Starts on a slot that this process holds now. */
  gain(slot: HeldSlot, cursor: Cursor, parkedModels: readonly string[]): void {
    const { saver } = this.#around;
    const position: SlotPosition = {
      slot,
      progress: new SlotProgress((moved, wantedCount) =>
        saver.moved({ handler: this.name, slot, cursor: moved, wantedCount, onSaved }),
      ),
      phase: slot.abandoned ? 'careful' : 'open',
      cursor,
      generation: -1,
      more: true,
      unsavedCount: 0,
      suspectCount: 0,
    };
    const onSaved = (wantedCount: number): void => {
      position.unsavedCount -= wantedCount;
      this.#alarm.ring();
    };
    this.#parked.drop(slot.slot);
    for (const model of parkedModels) this.#parked.add(slot.slot, model);
    this.#positions.set(slot.slot, position);
    slot.lost.addEventListener('abort', () => this.#lose(position), { once: true });
    this.#alarm.ring();
  }

  setPaused(paused: boolean): void {
    if (paused === this.#paused) return;
    this.#paused = paused;
    this.#alarm.ring();
  }

  /** Looks at the log, because something may have been committed. */
  wake(): void {
    this.#alarm.ring();
  }

  /** Tries a parked event when its model is free; resolves when the attempt has ended, however it did. */
  retry(head: ParkedHead, slot: HeldSlot): Promise<void> {
    return new Promise((onEnded) => {
      this.#lanes.addFirst(this.#laneOf(head.event), { kind: 'retry', head, slot, onEnded });
    });
  }

  /** Finds out whether a model has parked events left, and lets it flow again if not. */
  check(event: DeliverableEvent, slot: HeldSlot): void {
    this.#lanes.addFirst(this.#laneOf(event), { kind: 'check', slot, model: modelKey(event) });
  }

  /** Says that no suspect of a slot is left that could be tried now: the slot flows again. */
  settled(slot: number): void {
    const position = this.#positions.get(slot);
    if (position?.phase !== 'settling') return;
    position.phase = 'open';
    this.#alarm.ring();
  }

  /** Reads and hands out events until it is stopped. */
  async run(): Promise<void> {
    const backoff = storeBackoff(this.#around.context);
    while (!this.#stopped) {
      const groups = groupPositions(this.#readable()).slice(0, readsMax);
      if (groups.length === 0) {
        await this.#alarm.wait();
        continue;
      }
      try {
        await Promise.all(groups.map((group) => this.#advance(group)));
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
    this.#alarm.ring();
  }

  /** Resolves when everything that was read is done or parked. */
  idle(): Promise<void> {
    return this.#lanes.idle();
  }

  /** Gives up every call. */
  drop(reason: unknown): void {
    this.#caller.drop(reason);
  }

  #lose(position: SlotPosition): void {
    const { slot } = position;
    this.#caller.drop(slot.lost.reason, slot);
    if (this.#positions.get(slot.slot) !== position) return;
    this.#positions.delete(slot.slot);
    this.#parked.drop(slot.slot);
  }

  #readable(): readonly SlotPosition[] {
    const { reader, saver, context } = this.#around;
    const { unfinishedMax, unsavedMax } = context.settings;
    if (this.#paused || this.#unfinishedCount >= unfinishedMax) return [];
    const positions = [...this.#positions.values()];
    const unsavedCount = positions.reduce((sum, each) => sum + each.unsavedCount, 0);
    if (unsavedCount >= unsavedMax) {
      saver.hurry();
      return [];
    }
    return positions.filter(
      ({ phase, more, generation }) => phase !== 'settling' && (more || generation < reader.generation),
    );
  }

  async #advance(group: readonly SlotPosition[]): Promise<void> {
    const [first] = group;
    if (first === undefined) return;
    const slots = group.map(({ slot }) => slot.slot);
    const batch = await this.#around.reader.read(slots, first.cursor);
    const bySlot = Map.groupBy(
      batch.events.filter((event) => this.#wants(event)),
      ({ slot }) => slot,
    );
    const passed = group.map((position) => this.#pass(position, batch, bySlot.get(position.slot.slot) ?? []));
    await Promise.all(passed);
  }

  /** Moves one slot beyond a batch; it may have been lost while the batch was read. */
  async #pass(position: SlotPosition, batch: ReadBatch, events: readonly DeliverableEvent[]): Promise<void> {
    const { slot, progress } = position;
    if (!slot.held) return;
    const { next, more, generation } = batch;
    if (position.phase === 'careful') {
      if (!(await this.#parkSuspects(position, events))) return;
      progress.add(next, 0);
      if (!more || position.suspectCount >= this.#suspectsMax) position.phase = 'settling';
      this.#around.onParked();
    } else {
      const step = progress.add(next, events.length);
      position.unsavedCount += events.length;
      this.#unfinishedCount += events.length;
      for (const event of events) {
        const onFinished = (): void => progress.finish(step);
        this.#lanes.add(this.#laneOf(event), { kind: 'event', event, slot, onFinished });
      }
      this.#lanes.resume();
    }
    position.cursor = next;
    position.more = more;
    position.generation = generation;
  }

  /** As many as the holder before can have had beyond its saved cursor, and the last batch. */
  get #suspectsMax(): number {
    const { unsavedMax, readMax } = this.#around.context.settings;
    return unsavedMax + 2 * readMax;
  }

  async #parkSuspects(position: SlotPosition, events: readonly DeliverableEvent[]): Promise<boolean> {
    const { slot } = position;
    const suspects = events.map((event) => ({
      handler: this.name,
      event,
      attempts: 0,
      error: undefined,
      retryAfterMs: undefined,
      dead: false,
      suspect: true,
    }));
    if (!(await this.#around.parker.park(slot, suspects))) return false;
    for (const event of events) this.#parked.add(slot.slot, modelKey(event));
    position.suspectCount += events.length;
    return true;
  }

  #wants({ type }: DeliverableEvent): boolean {
    return this.#handler.eventClasses?.has(type) ?? true;
  }

  #laneOf(event: DeliverableEvent): string {
    return this.#policy.batches ? `${event.slot}` : modelKey(event);
  }

  async #step(lane: Lane<FlowWork>): Promise<void> {
    try {
      const [first] = lane.items;
      if (first?.kind === 'event') return await this.#runEvents(first, lane);
      lane.items.shift();
      if (first?.kind === 'retry') await this.#retries.run(first).finally(first.onEnded);
      else if (first?.kind === 'check') await this.#runCheck(first.slot, first.model);
    } catch (error) {
      this.#around.context.onError(error);
    }
  }

  async #runEvents(first: EventWork, lane: Lane<FlowWork>): Promise<void> {
    const countMax = this.#events.countMax(first);
    const works: EventWork[] = [];
    for (const work of lane.items) {
      if (work.kind !== 'event' || works.length === countMax) break;
      works.push(work);
    }
    lane.items.splice(0, works.length);
    try {
      await this.#events.run(works);
    } finally {
      // Also those that were given up: whoever holds their slot next reads them again.
      const wasFull = this.#unfinishedCount >= this.#around.context.settings.unfinishedMax;
      this.#unfinishedCount -= works.length;
      if (wasFull) this.#alarm.ring();
    }
  }

  async #runCheck(slot: HeldSlot, model: string): Promise<void> {
    if (!slot.held) return;
    const parked = await this.#around.check.isParked(this.name, slot.slot, model);
    if (!parked && slot.held) this.#parked.delete(slot.slot, model);
  }
}

import {
  type BlockedAttempt,
  type BlockedHead,
  type BlockedModel,
  type DeliverableEvent,
  type LeasedModel,
  type ModelPosition,
  type SlotLease,
  comparePositions,
  positionAfter,
} from '@framework/core/adapter';

/**
 * A slot that this process holds for a handler, until it is lost. Code that works in the slot checks first that it is still held.
 *
 * Before a slot is given back, the process leaves it: it begins nothing new there, and finishes what it has begun.
 */
export class HeldSlot {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  readonly token: string;
  /**
   * Whether the previous holder died while holding it, or this process's event loop stopped for too long: any event beyond the
   * cursor may have been the cause. It stays true until the database knows that the slot has recovered.
   */
  abandoned: boolean;
  /** Whether the slot is read on: no event after the cursor is a suspect that must be tried first. */
  isOpen = false;
  /** The blocked models in the slot, by {@link modelKey}. */
  readonly blocked = new Map<string, ModelRecovery>();
  /** Those that are open again, and only remembered until the slot has been read past everything that was drained. */
  readonly opened = new Set<ModelRecovery>();
  /** Its events in memory: how many there are, and about how many bytes they have. */
  readonly load = { count: 0, bytes: 0 };
  // Kept beside the signals, which are slow to ask.
  #isLeaving = false;
  #held = true;
  readonly #leaving = new AbortController();
  readonly #lost = new AbortController();
  /** Aborted when nothing new may begin: the slot is to be given back, or is lost. */
  readonly leaving: AbortSignal = this.#leaving.signal;
  /** Aborted when the slot is lost or given back. */
  readonly lost: AbortSignal = this.#lost.signal;
  #unfinishedCount = 0;
  readonly #onIdle: (() => void)[] = [];

  constructor({ handler, slot, token, abandoned }: Omit<SlotLease, 'surplus'>) {
    this.handler = handler;
    this.slot = slot;
    this.token = token;
    this.abandoned = abandoned;
  }

  /** Whether this process still holds the slot; false for ever once the slot is lost or given back. */
  get held(): boolean {
    return this.#held;
  }

  /** Whether nothing new may begin in the slot. */
  get isLeaving(): boolean {
    return this.#isLeaving;
  }

  /** Whether everything that a dead holder may have been handling has been tried, in blocked models as well. */
  get hasRecovered(): boolean {
    const models = [...this.blocked.values()];
    return this.isOpen && models.every(({ suspectCount, hasFailed }) => suspectCount === 0 || hasFailed);
  }

  /** The recovery of a model; a new one in the given phase unless the model is known to be blocked. */
  recoveryOf(model: Named, phase: 'blocking' | 'waiting'): ModelRecovery {
    const key = modelKey(model);
    const known = this.blocked.get(key);
    if (known !== undefined && known.phase !== 'open') return known;
    if (known !== undefined) this.opened.delete(known);
    const recovery = new ModelRecovery(this, model, phase);
    this.blocked.set(key, recovery);
    return recovery;
  }

  /** Counts work that begins, or with a negative number, work that has ended. */
  countWork(change: number): void {
    this.#unfinishedCount += change;
    if (this.#unfinishedCount === 0) for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** Whether no work is queued or being done. */
  get isIdle(): boolean {
    return this.#unfinishedCount === 0;
  }

  /** Resolves when all work is finished. */
  async idle(): Promise<void> {
    while (this.#unfinishedCount > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  /** Begins nothing new in the slot. */
  leave(): void {
    this.#isLeaving = true;
    this.#leaving.abort();
  }

  lose(): void {
    this.#held = false;
    this.leave();
    this.#lost.abort(new Error(`This process no longer holds slot ${this.slot} of handler ${this.handler}`));
  }
}

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

/** An event from the log, to be handled or, if its model is blocked, to be left there. */
export interface EventWork {
  readonly event: DeliverableEvent;
  readonly slot: HeldSlot;
  /** The batch of a blocked model with which it was read; `undefined` if it was read from the slot. */
  readonly batch?: DrainedBatch | undefined;
  /** Called once when it is done or left to its blocked model. */
  readonly onFinished: () => void;
}

/**
 * The phases of a blocked model.
 *
 * `blocking`: its row is being written. `waiting`: its head is a dead letter, or waits for its next attempt. `trying`: its head is
 * being tried. `draining`: the events behind its head are read from the log, and handled. `joining`: the last of them are, and what
 * is read from the slot is kept. `open`: its row is gone; it is remembered only until the slot has been read up to where it was
 * drained, so that nothing is handled twice.
 */
type RecoveryPhase = 'blocking' | 'waiting' | 'trying' | 'draining' | 'joining' | 'open';

/** Events of a blocked model that were read from the log together. */
export interface DrainedBatch {
  readonly events: readonly DeliverableEvent[];
  /** How many are to be handled, or being handled. */
  unfinishedCount: number;
  /** Whether some of them are left to the next holder of the slot. */
  isLeft: boolean;
  /** Called once: with true when all are done, with false when some are left, one has failed, or the slot is lost. */
  readonly onEnded: (isDone: boolean) => void;
}

/** How many open models of a slot are remembered although the slot has met what was drained. */
const rememberedMax = 256;
/** How many suspects of a model are tried in one attempt while no process has died in one. */
const suspectsMax = 128;
/** How many times fewer they are after each process that has. */
const narrowing = 16;

/** A position before that of every event. */
const beforeAll: ModelPosition = { modelVersion: -1, ordinal: 0 };

type Named = Pick<BlockedModel, 'modelName' | 'modelId'> & Partial<Pick<BlockedHead, 'hasFailed'>>;

/** The recovery of one blocked model in a slot that this process holds: from its failed event until no event waits behind it. */
export class ModelRecovery {
  readonly slot: HeldSlot;
  readonly modelName: string;
  readonly modelId: string;
  /** How many of the next events are suspects: a process died that may have been handling them. */
  suspectCount: number;
  /** The attempt in which suspects are being tried; it stays open until all are passed. */
  attempt: BlockedAttempt | undefined;
  /** Whether an event of it had failed when this process gained the slot, or has failed while suspects were tried. */
  hasFailed: boolean;
  /** Everything before it is done, as far as this process knows. */
  position: ModelPosition = { modelVersion: 0, ordinal: 0 };
  #phase: RecoveryPhase;
  /** Events behind the head that are done. */
  #doneIds: Set<string> = new Set();
  /** The furthest event that was read from the slot and left in the log. */
  #leftTo: ModelPosition = beforeAll;
  /** What was read from the slot while the row was being written, or while the last events were being drained. */
  readonly #kept: EventWork[] = [];
  /** How many processes have died in attempts at these suspects. */
  #openCount = 0;
  /** Up to where a batch has failed as a whole, and how many events may be read at once until then. */
  #failed: { readonly to: ModelPosition; readonly readMax: number } = { to: beforeAll, readMax: Infinity };
  /** The commit generation when it was opened: a read of the slot with a later one began after that. */
  #openedGeneration = Infinity;
  /** Whether the slot has been read as far as it was drained. An earlier event may still come: see {@link forget}. */
  #isMet = false;
  #batch: DrainedBatch | undefined;
  #interrupted: DrainedBatch | undefined;

  /** @param phase `blocking` until its row is written; `waiting` if the row exists */
  constructor(
    slot: HeldSlot,
    { modelName, modelId, hasFailed = false }: Named,
    phase: 'blocking' | 'waiting',
    suspectCount = 0,
  ) {
    this.slot = slot;
    this.hasFailed = hasFailed;
    this.modelName = modelName;
    this.modelId = modelId;
    this.#phase = phase;
    this.suspectCount = suspectCount;
  }

  get phase(): RecoveryPhase {
    return this.#phase;
  }

  /** The model, with the token of its lease. */
  get leased(): LeasedModel {
    const { handler, slot, token } = this.slot;
    return { handler, slot, token, modelName: this.modelName, modelId: this.modelId };
  }

  /**
   * Decides about an event that was just read from the slot.
   *
   * @returns `handle` if the model is open, `keep` if the event is kept here until the model is, or `leave` if the event is done or
   * stays in the log
   */
  meet(work: EventWork): 'handle' | 'keep' | 'leave' {
    const { event } = work;
    if (this.#phase === 'open') {
      if (comparePositions(positionAfter(event), this.position) >= 0) this.#remember();
      return comparePositions(event, this.position) < 0 ? 'leave' : 'handle';
    }
    if (this.#phase === 'blocking' || this.#phase === 'joining') {
      this.#kept.push(work);
      return 'keep';
    }
    this.leave(event);
    return 'leave';
  }

  /** Whether an event that was queued may be handled now: all may when the model is open, otherwise only those being drained. */
  admits({ batch }: Pick<EventWork, 'batch'>): boolean {
    return batch === undefined ? this.#phase === 'open' : batch === this.#batch;
  }

  /** Records that an event that was read from the slot stays in the log. */
  leave({ modelVersion, ordinal }: ModelPosition): void {
    const position = { modelVersion, ordinal };
    if (comparePositions(position, this.#leftTo) > 0) this.#leftTo = position;
  }

  /** Takes the head that is due; false if it is being worked on already, or if this process knows that it is done. */
  take({ position, doneIds, openCount }: BlockedHead): boolean {
    if (this.#phase !== 'waiting' || comparePositions(position, this.position) < 0) return false;
    this.#phase = 'trying';
    this.position = position;
    this.#doneIds = new Set(doneIds);
    this.#openCount = openCount;
    return true;
  }

  /** Handles no more of the events that are being drained, because one has failed; its failure is still to be written. */
  interrupt(): void {
    this.#interrupted = this.#batch ?? this.#interrupted;
    this.#batch = undefined;
    if (this.#phase !== 'blocking') this.#phase = 'trying';
  }

  /**
   * Waits for the next attempt at its head.
   *
   * @returns what was kept, which stays in the log now
   */
  wait(
    { modelVersion, ordinal }: ModelPosition = this.position,
    doneIds: Iterable<string> = this.#doneIds,
  ): readonly EventWork[] {
    this.#phase = 'waiting';
    this.attempt = undefined;
    this.position = { modelVersion, ordinal };
    this.#doneIds = new Set(doneIds);
    const kept = this.#kept.splice(0);
    for (const { event } of kept) this.leave(event);
    this.#interrupted?.onEnded(false);
    this.#interrupted = undefined;
    return kept;
  }

  /** Drains events; once the log has had no more than these, what is read from the slot is kept. */
  drain(batch: DrainedBatch, hasMore: boolean): void {
    this.#batch = batch;
    if (this.#phase !== 'joining') this.#phase = hasMore ? 'draining' : 'joining';
  }

  /** Whether everything is drained that was read from the slot and left in the log. */
  get hasCaughtUp(): boolean {
    return comparePositions(this.#leftTo, this.position) < 0;
  }

  /** Events behind the head that are done. */
  get doneIds(): readonly string[] {
    return [...this.#doneIds];
  }

  /** Those of them that are not known to be before a position. */
  doneIdsFrom(position: ModelPosition): readonly string[] {
    const { events = [] } = this.#batch ?? this.#interrupted ?? {};
    const passed = new Set(
      events.filter((event) => comparePositions(event, position) < 0).map(({ id }) => id),
    );
    return this.doneIds.filter((id) => !passed.has(id));
  }

  isDone(eventId: string): boolean {
    return this.#doneIds.has(eventId);
  }

  /** How many suspects may be tried in one attempt: fewer after each death, until only one event can be to blame. */
  get suspectsMax(): number {
    return Math.min(this.suspectCount, Math.max(1, Math.floor(suspectsMax / narrowing ** this.#openCount)));
  }

  /** Forgets which of these events are done, because the model has passed them. */
  pass(events: readonly DeliverableEvent[]): void {
    for (const { id } of events) this.#doneIds.delete(id);
  }

  /** How many events may be read at once: fewer where a batch has failed as a whole, until the one that it failed for is found. */
  get readMax(): number {
    return comparePositions(this.#failed.to, this.position) < 0 ? Infinity : this.#failed.readMax;
  }

  /** Halves what may be read at once, up to the last of some events that were in a batch that failed as a whole. */
  halve(events: readonly DeliverableEvent[]): void {
    const to = events.at(-1);
    if (to === undefined || events.length < 2) return;
    this.#failed = { to, readMax: Math.ceil(events.length / 2) };
  }

  /**
   * Opens the model: its row is gone.
   *
   * @param generation the present commit generation, see `LogReader.generation`
   * @returns what was kept, in order: what is done, and what is to be handled
   */
  open(generation: number): { readonly done: readonly EventWork[]; readonly next: readonly EventWork[] } {
    this.#phase = 'open';
    this.#openedGeneration = generation;
    const kept = this.#kept.splice(0).toSorted((one, other) => comparePositions(one.event, other.event));
    const from = kept.findIndex(({ event }) => comparePositions(event, this.position) >= 0);
    const next = from === -1 ? [] : kept.slice(from);
    const readTo = next[0]?.event ?? kept.at(-1)?.event ?? this.#leftTo;
    this.slot.opened.add(this);
    if (comparePositions(positionAfter(readTo), this.position) >= 0) this.#remember();
    return { done: from === -1 ? kept : kept.slice(0, from), next };
  }

  /**
   * Forgets an open model if no read of its slot can return what was drained.
   *
   * Called after a read of the slot that reached its end. An event that the slot has met may have a higher version, and yet an earlier
   * place, than one that was drained; up to the end, everything that was committed before it has been met.
   *
   * @param generation the commit generation of that read; `undefined` if it was a read of the handler's own source, which may be behind
   * the log
   */
  forget(generation: number | undefined): void {
    if (generation === undefined ? this.#isMet : generation > this.#openedGeneration) this.#forget();
  }

  /** Remembers that the slot has met what was drained; if many models are remembered, forgets this one, at the risk of a repeat. */
  #remember(): void {
    this.#isMet = true;
    if (this.slot.opened.size > rememberedMax) this.#forget();
  }

  #forget(): void {
    const { blocked, opened } = this.slot;
    const key = modelKey(this);
    opened.delete(this);
    if (blocked.get(key) === this) blocked.delete(key);
  }

  /** Forgets what was kept, because the slot is lost; returns it. */
  drop(): readonly EventWork[] {
    this.interrupt();
    this.#interrupted?.onEnded(false);
    return this.#kept.splice(0);
  }
}

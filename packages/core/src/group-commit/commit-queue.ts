import { type Clock, Ticker, outsideRequests } from '../clock.js';
import type { GroupSettings } from '../config/settings.js';
import { ModelMap } from '../id/model-class.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { Observe } from '../observer.js';
import { ShardUnavailableError, StaleRecordError } from '../storage/storage-errors.js';
import { type TransactionManager, outcomeOf } from '../storage/transaction-manager.js';
import { type PendingCommit, type PendingVersions, dependencyAborted } from './pending-commit.js';
import { type Batch, nextGroup, writeBatch } from './write-group.js';

/** How long the queue waits for a write, so that the plans that arrive meanwhile form one group. Then the next group is sent. */
const writeWaitMs = 50;
/** How many further writes may be sent beside the one that the queue waits for. */
const asideMax = 8;
/** How many writes may wait for locks as long as a statement may take. The others give up after a moment. */
const lockWaitsMax = 5;
/** How many of these places may be taken by plans that are known to wait for a lock; the others are left for all other plans. */
const lockedMax = 6;
/** The time for which a plan may wait, in ticks. */
const ticksPerWait = 4;
/**
 * The same for a handler's plan that is held up, and for all handlers' plans behind the same write. While they waited, they would
 * occupy places that events of other models need; and their events are tried again in any case.
 */
const ticksPerHandlerWait = 1;
/**
 * How many plans of handlers may wait for locks, or behind plans that do. A handler has more places for its events than these, so
 * that some are left for events of other models.
 */
const handlersLockedMax = 8;

/** The write for which the queue waits; the plans that arrive meanwhile form the next group. */
interface AwaitedWrite {
  readonly batch: Batch;
  /** Cancels the timer that ends the wait. */
  readonly cancelWriteTimer: () => void;
  /** Whether the wait is over, but there was no capacity to set the write aside. */
  isOverdue: boolean;
}

/**
 * Writes the plans of one shard in groups. The states of a plan (`PendingCommit` has the present one):
 *
 *                     ┌─────────┐
 *                     ▼         │
 *     queued ──────▶ sent ──▶ again
 *       │            │ │ │      │
 *       │  written ◀─┘ │ └──────┼──▶ asked ──▶ written, aborted or unknown
 *       ▼              ▼        ▼
 *     aborted ◀────────┴────────┘
 *
 * - queued → sent: at once, if the queue waits for no write; else in the next group, with the plans that arrive meanwhile.
 * - sent → again: the plan belongs to a part of a group that failed as a whole, and the part is sent on its own; or it found a
 *   row locked and there is no place to wait for it in the database, so it is tried briefly, in turn with the others.
 * - sent → asked: the answer was lost, so the log is asked for the outcome, which may stay unknown.
 * - sent → aborted: the plan is stale, the database refuses it, or its idempotency key is taken.
 * - queued or again → aborted: the plan has waited too long, is known to be stale, or depends on an aborted plan.
 *
 * Nothing of an aborted plan is written.
 *
 * The queue waits for one of the writes that are sent. If that takes a long time, because a row is locked, it is set aside: only
 * plans that change the same models wait for it any longer. Plans that are sent again or looked up in the log are set aside from
 * the start.
 */
export class CommitQueue {
  readonly #manager: TransactionManager;
  readonly #observe: Observe;
  readonly #settings: GroupSettings;
  readonly #pending: PendingVersions;
  /** In the order in which they came. */
  #queued: PendingCommit[] = [];
  /** What is to be sent again, before the queued plans; in order where batches change the same models. */
  #again: Batch[] = [];
  readonly #sent = new Set<Batch>();
  /** Those of the sent batches that wait for locks as long as a statement may take. */
  readonly #waitingForLocks = new Set<Batch>();
  readonly #asked = new Set<PendingCommit>();
  /** The write for which the queue waits, if any; its batch is among the sent ones. */
  #awaited: AwaitedWrite | undefined;
  #isAboutToSend = false;
  readonly #clock: Clock;
  readonly #ticker: Ticker;

  constructor(
    manager: TransactionManager,
    settings: GroupSettings,
    pending: PendingVersions,
    clock: Clock,
    observe: Observe,
  ) {
    this.#manager = manager;
    this.#observe = observe;
    this.#settings = settings;
    this.#pending = pending;
    this.#clock = clock;
    this.#ticker = new Ticker(clock, settings.queueWaitMs, () => this.#refuseOverdue(), ticksPerWait);
  }

  /**
   * Queues a plan, and shows what it stages to executions that read the same models.
   *
   * @throws ShardUnavailableError `shard-unavailable` when too many plans are waiting already, or, for a handler's plan, when
   * an earlier write of its models takes too long
   */
  add(plan: PendingCommit): void {
    plan.isHeldUp = this.#pending.areHeldUp(plan);
    this.#refuseBeyondQueue(plan);
    this.#refuseBehindLocked(plan);
    plan.queuedTick = this.#ticker.tick;
    this.#queued.push(plan);
    this.#pending.show(plan);
    if (this.#isAboutToSend) return;
    this.#isAboutToSend = true;
    // Plans that are ready at the same moment, such as those of one combined read, form one group. It is sent outside the
    // context of any request.
    outsideRequests(() =>
      queueMicrotask(() => {
        this.#isAboutToSend = false;
        this.#sendAll();
        if (this.#queued.length > 0) this.#ticker.start();
      }),
    );
  }

  /** Refuses a plan when the queue is full. Plans that are held up count separately, so they keep out no others. */
  #refuseBeyondQueue({ isHeldUp }: PendingCommit): void {
    const { queueMax } = this.#settings;
    if (this.#queued.length < queueMax) return;
    const alike = this.#queued.filter((waiting) => waiting.isHeldUp === isHeldUp);
    if (alike.length < queueMax) return;
    throw unwritten(this.#manager.shard, `${queueMax} plans are already waiting to be written`, isHeldUp);
  }

  /** Refuses a handler's plan when such plans would otherwise wait for the same write one after the other. */
  #refuseBehindLocked(plan: PendingCommit): void {
    if (!plan.isOfHandler) return;
    const ahead = [...this.#tried, ...this.#asked];
    const takesLong = ahead.some((each) => this.#takesLong(each) && plan.sharesModel(each));
    const isBehind = takesLong || ahead.some((each) => isLockedHandler(each) && plan.sharesModel(each));
    if (takesLong || (isBehind && this.#handlersBehindLocks().length >= handlersLockedMax))
      throw lockedOut(this.#manager.shard);
  }

  /** The handlers' plans that wait for locks, followed by those that wait behind them. */
  #handlersBehindLocks(): readonly PendingCommit[] {
    const locked = this.#tried.filter(isLockedHandler);
    const behind = [...this.#again.flat(), ...this.#queued].filter(
      (plan) => plan.isOfHandler && !plan.isLockedOut && locked.some((each) => plan.sharesModel(each)),
    );
    return [...locked, ...behind];
  }

  #takesLong({ sentTick }: PendingCommit): boolean {
    return sentTick !== undefined && this.#ticker.isOver(sentTick, ticksPerHandlerWait);
  }

  #waitsForLock(plan: PendingCommit): void {
    plan.isLockedOut = true;
    this.#refuseForLocked(plan);
    this.#sendAll();
  }

  /** Refuses the handlers' plans beyond the number that may wait for locks, or behind plans that do. */
  #refuseForLocked(locked: PendingCommit): void {
    if (!isLockedHandler(locked)) return;
    const others = this.#handlersBehindLocks().filter((plan) => plan !== locked);
    const behind = others.findIndex(({ isLockedOut }) => !isLockedOut);
    const inOrder = others.toSpliced(behind === -1 ? others.length : behind, 0, locked);
    for (const plan of inOrder.slice(handlersLockedMax)) {
      if (plan.isWaiting) this.#fail(plan, lockedOut(this.#manager.shard));
    }
    this.#dropEnded();
  }

  /** What is sent, or waits to be sent again. */
  get #tried(): readonly PendingCommit[] {
    return [...this.#sent, ...this.#again].flat();
  }

  get #hasWaiting(): boolean {
    return this.#queued.length > 0 || this.#again.length > 0;
  }

  /** Fails the waiting plans that have waited too long. Returns whether some still wait. */
  #refuseOverdue(): boolean {
    for (const plan of [...this.#again.flat(), ...this.#queued]) {
      const ticks = plan.isHeldUp && plan.isOfHandler ? ticksPerHandlerWait : ticksPerWait;
      if (!this.#ticker.isOver(plan.queuedTick, ticks)) continue;
      const waitedMs = (this.#settings.queueWaitMs * ticks) / ticksPerWait;
      const error = unwritten(
        this.#manager.shard,
        `the plan was not sent within ${waitedMs} ms`,
        plan.isHeldUp,
      );
      this.#fail(plan, error);
    }
    this.#dropEnded();
    this.#sendAll();
    return this.#hasWaiting;
  }

  get #asideCount(): number {
    return this.#sent.size - (this.#awaited === undefined ? 0 : 1);
  }

  /** Sends everything that need not wait. */
  #sendAll(): void {
    this.#sendAgain();
    if (this.#awaited !== undefined) return;
    const ahead = [...this.#tried, ...this.#asked];
    const { group, rest } = nextGroup(this.#queued, this.#settings.plansMax, ahead);
    if (group.length === 0) return;
    this.#queued = rest;
    const cancelWriteTimer = this.#clock.after(writeWaitMs, () => this.#stopWaiting());
    this.#awaited = { batch: group, cancelWriteTimer, isOverdue: false };
    void this.#write(group);
  }

  #sendAgain(): void {
    const free = this.#again.filter(isFree);
    // Batches that are locked out come last, beginning with the one that was tried least recently. Of the others, the one that
    // has waited longest comes first, so that parts of later groups do not take its place.
    free.sort((one, other) => lockAttempt(one) - lockAttempt(other) || queuedMs(one) - queuedMs(other));
    const sent = new Set<Batch>();
    for (const batch of free) {
      if (!this.#hasPlace(batch)) continue;
      sent.add(batch);
      void this.#write(batch);
    }
    this.#again = this.#again.filter((batch) => !sent.has(batch));
  }

  #hasPlace(batch: Batch): boolean {
    if (this.#asideCount >= asideMax) return false;
    if (lockAttempt(batch) === 0) return true;
    const tried = [...this.#sent].filter((each) => lockAttempt(each) > 0 && !this.#waitingForLocks.has(each));
    return this.#waitingForLocks.size + tried.length < lockedMax;
  }

  /** Sets aside the write that the queue waits for, if there is capacity, so that the next group can be sent. */
  #stopWaiting(): void {
    if (this.#awaited === undefined) return;
    this.#awaited.isOverdue = true;
    if (this.#setOverdueAside()) this.#sendAll();
  }

  /** Sets the awaited write aside if it is overdue and there is capacity. Then only plans that change its models wait for it. */
  #setOverdueAside(): boolean {
    if (this.#awaited?.isOverdue !== true || this.#asideCount >= asideMax) return false;
    holdUp(this.#awaited.batch);
    this.#forgetAwaited();
    return true;
  }

  #forgetAwaited(): void {
    this.#awaited?.cancelWriteTimer();
    this.#awaited = undefined;
  }

  async #write(batch: Batch): Promise<void> {
    this.#sent.add(batch);
    for (const plan of batch) plan.send(this.#ticker.tick);
    const waitsForLocks = batch.length === 1 && this.#waitingForLocks.size < lockWaitsMax;
    if (waitsForLocks) this.#waitingForLocks.add(batch);
    // This may be called while batches are being sent.
    const onLockedOut = (plan: PendingCommit): void => queueMicrotask(() => this.#waitsForLock(plan));
    const writing = { kind: 'write-group', shard: this.#manager.shard, planCount: batch.length } as const;
    const { again, unknown } = await this.#observe(writing, () =>
      writeBatch(batch, this.#manager, waitsForLocks, onLockedOut),
    );
    this.#sent.delete(batch);
    this.#waitingForLocks.delete(batch);
    if (this.#awaited?.batch === batch) this.#forgetAwaited();
    // Plans that waited behind the batch wait behind its parts.
    this.#again.unshift(...again);
    for (const plan of again.flat()) {
      plan.putBack();
      plan.isHeldUp = true;
    }
    for (const plan of again.flat()) this.#refuseForLocked(plan);
    for (const { plan, error } of unknown) void this.#ask(plan, error);
    this.#goOnAfter(batch);
  }

  /** Asks the log for an outcome that is not known. */
  async #ask(plan: PendingCommit, error: unknown): Promise<void> {
    plan.ask();
    plan.isHeldUp = true;
    this.#asked.add(plan);
    try {
      plan.decide(await outcomeOf(error, this.#manager));
    } catch (failure) {
      plan.fail(failure);
    }
    this.#asked.delete(plan);
    this.#goOnAfter([plan]);
  }

  /** After plans have their outcome: sends what waited for them, and lets their executions continue. */
  #goOnAfter(batch: Batch): void {
    const written = new ModelMap<number>();
    for (const plan of batch) {
      if (plan.isPending) continue;
      this.#pending.hide(plan);
      if (plan.state === 'written')
        for (const { repository, model } of plan.changes.changes)
          written.set(repository.model, model.id.value, model.version);
    }
    this.#refuseStale(written);
    this.#dropEnded();
    this.#setOverdueAside();
    const sentBefore = this.#sent.size;
    this.#sendAll();
    // The next group is sent first, because the executions of this one keep the process busy for a while when they continue.
    if (this.#sent.size > sentBefore) this.#clock.after(0, () => tellAll(batch));
    else tellAll(batch);
    if (this.#hasWaiting) this.#ticker.start();
  }

  /** Fails waiting plans that are stale by now: one of their models has a later version than they expect. */
  #refuseStale(written: ModelMap<number>): void {
    for (const plan of [...this.#again.flat(), ...this.#queued]) {
      const stale = plan.changes.changes.find(
        ({ kind, repository, model, expectedVersion }) =>
          kind === 'update' && expectedVersion < (written.get(repository.model, model.id.value) ?? 0),
      );
      if (stale !== undefined) this.#fail(plan, StaleRecordError.of(stale));
    }
  }

  /** Removes plans that have ended, and fails those that depend on an aborted plan; in order, as others may depend on these. */
  #dropEnded(): void {
    this.#again = this.#again
      .map((batch) => batch.filter((plan) => !this.#hasEnded(plan)))
      .filter((batch) => batch.length > 0);
    this.#queued = this.#queued.filter((plan) => !this.#hasEnded(plan));
  }

  #hasEnded(plan: PendingCommit): boolean {
    if (!plan.isPending) return true;
    const aborted = plan.abortedDependency;
    if (aborted === undefined) return false;
    this.#fail(plan, dependencyAborted(aborted));
    return true;
  }

  /** Fails a plan that waits. */
  #fail(plan: PendingCommit, error: unknown): void {
    plan.fail(error);
    this.#pending.hide(plan);
  }
}

/** The error of a handler's plan that would wait for a lock, or needs a model whose write waits for one. */
export function lockedOut(shard: ShardIdentifier): ShardUnavailableError {
  return unwritten(shard, "a handler's plan does not wait", true);
}

/** The error of a plan that was not written. */
function unwritten(shard: ShardIdentifier, reason: string, isHeldUp: boolean): ShardUnavailableError {
  if (!isHeldUp) return new ShardUnavailableError(shard, reason);
  return new ShardUnavailableError(
    shard,
    `${reason}, because an earlier write of its models is taking a long time: another session may hold a lock on one of their rows; ` +
      'find it in pg_locks and pg_stat_activity',
    { kind: 'locked' },
  );
}

function isLockedHandler(plan: PendingCommit): boolean {
  return plan.isOfHandler && plan.isLockedOut && plan.isPending;
}

function holdUp(batch: Batch): void {
  for (const plan of batch) plan.isHeldUp = true;
}

/** Whether a batch need not wait for another one. Of plans that change the same model, each depends on the one before. */
function isFree(batch: Batch): boolean {
  return batch.every(({ dependsOn }) =>
    dependsOn.every(({ plan }) => !plan.isPending || batch.includes(plan)),
  );
}

/** The turn in which a plan last failed to get a lock; 0 for a group, because none of its plans was tried on its own. */
function lockAttempt([first]: Batch): number {
  return first?.lockAttempt ?? 0;
}

/** The time at which a batch began to wait: that of its first plan. */
function queuedMs([first]: Batch): number {
  return first?.queuedMs ?? 0;
}

function tellAll(batch: Batch): void {
  for (const plan of batch) plan.tell();
}

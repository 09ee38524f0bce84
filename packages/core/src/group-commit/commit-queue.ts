import { type Clock, Ticker } from '../clock.js';
import type { GroupSettings } from '../config/settings.js';
import { ShardUnavailableError, StaleRecordError } from '../errors/storage-errors.js';
import { ModelMap } from '../model/model-class.js';
import { outsideRequests } from '../outside-requests.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import { type TransactionManager, outcomeOf } from '../storage/transaction-manager.js';
import { type PendingCommit, type PendingVersions, dependencyAborted } from './pending-commit.js';
import { type Batch, nextGroup, writeBatch } from './write-group.js';

/** How long a write is waited for, so that those that come meanwhile go together; then they do not wait for it any more. */
const patienceMs = 50;
/** How many writes are under way at most beside the one that is waited for. */
const asideMax = 8;
/** How many wait for locks at most as long as a statement may take. The others wait for a moment only. */
const patientMax = 5;
/** How many of these places are taken at most by plans that are known to be locked out: what is free must not wait for them. */
const lockedMax = 6;
/** How many ticks make up the time for which a plan may wait. */
const ticksPerWait = 4;
/**
 * As many for the plan of a handler that is held up, and for all of them behind the same write: delivery tries their events again by
 * itself, and meanwhile they would keep their places from the events of other models.
 */
const ticksPerHandlerWait = 1;
/**
 * How many plans of handlers wait for locks at most, or behind those that do: a handler has more places for its events, and needs some
 * for the others.
 */
const handlersLockedMax = 8;

/** The write that is waited for, so that the plans which come meanwhile form the next group. */
interface AwaitedWrite {
  readonly batch: Batch;
  /** Ends the time for which it is waited for. */
  readonly endPatience: () => void;
  /** Whether it has taken too long, and there was no place aside. */
  isOverdue: boolean;
}

/**
 * Writes the plans of one shard in groups. The states of a plan, of which `PendingCommit` holds the present one:
 *
 *                     ┌─────────┐
 *                     ▼         │
 *     queued ──────▶ sent ──▶ again
 *       │            │ │ │      │
 *       │  written ◀─┘ │ └──────┼──▶ asked ──▶ written, aborted or unknown
 *       ▼              ▼        ▼
 *     aborted ◀────────┴────────┘
 *
 * - queued → sent: a plan that finds no write that is waited for goes at once; those that come meanwhile form the next group.
 * - sent → again: a part of a group that failed, to be sent on its own; or a plan that found a row locked and has no place to wait for
 *   it in the database, to be tried for a moment, one after the other.
 * - sent → asked: the answer was lost, so the log is asked, which tells the outcome or does not know it either.
 * - sent → aborted: it is stale, the database refuses it, or its idempotency key is taken.
 * - queued or again → aborted: it has waited too long, is known to be stale, or depends on an aborted plan.
 *
 * Nothing of an aborted plan is written.
 *
 * Of those that are sent one write is waited for. When it takes long, because a row of it is locked, it goes on aside: only plans that
 * change the same models wait for it. What is sent again goes aside from the beginning, and so does what is asked of the log.
 */
export class CommitQueue {
  readonly #manager: TransactionManager;
  readonly #settings: GroupSettings;
  readonly #pending: PendingVersions;
  /** In the order in which they came. */
  #queued: PendingCommit[] = [];
  /** Before the queue, and in order where they change the same models. */
  #again: Batch[] = [];
  readonly #sent = new Set<Batch>();
  /** Those of the sent that wait for locks as long as a statement may take. */
  readonly #patient = new Set<Batch>();
  readonly #asked = new Set<PendingCommit>();
  /** One of those that are sent. */
  #awaited: AwaitedWrite | undefined;
  #isAboutToSend = false;
  readonly #clock: Clock;
  readonly #ticker: Ticker;

  constructor(manager: TransactionManager, settings: GroupSettings, pending: PendingVersions, clock: Clock) {
    this.#manager = manager;
    this.#settings = settings;
    this.#pending = pending;
    this.#clock = clock;
    this.#ticker = new Ticker(clock, settings.queueWaitMs, () => this.#refuseOverdue(), ticksPerWait);
  }

  /**
   * @throws ShardUnavailableError `shard-unavailable` when too many plans wait already, or, for the plan of a handler, when a
   * write of its models takes long
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
    // Plans that are ready at this very moment, such as those of one combined read, go together. Groups belong to nobody.
    outsideRequests(() =>
      queueMicrotask(() => {
        this.#isAboutToSend = false;
        this.#sendAll();
        if (this.#queued.length > 0) this.#ticker.start();
      }),
    );
  }

  /** Those that are held up are counted apart: they must not keep out what could be written. */
  #refuseBeyondQueue({ isHeldUp }: PendingCommit): void {
    const { queueMax } = this.#settings;
    if (this.#queued.length < queueMax) return;
    const alike = this.#queued.filter((waiting) => waiting.isHeldUp === isHeldUp);
    if (alike.length < queueMax) return;
    throw unwritten(this.#manager.shard, `${queueMax} plans wait to be written already`, isHeldUp);
  }

  /** One plan of a handler after the other would wait for the same write. */
  #refuseBehindLocked(plan: PendingCommit): void {
    if (!plan.isOfHandler) return;
    const ahead = [...this.#tried, ...this.#asked];
    const takesLong = ahead.some((each) => this.#takesLong(each) && plan.sharesModel(each));
    const isBehind = takesLong || ahead.some((each) => isLockedHandler(each) && plan.sharesModel(each));
    if (takesLong || (isBehind && this.#handlersBehindLocks().length >= handlersLockedMax))
      throw lockedOut(this.#manager.shard);
  }

  /** The plans of handlers that wait for locks, then those that wait behind them. */
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

  /** Few plans of handlers wait for locks, or behind plans of handlers that do. */
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

  /** Fails what has waited too long, of which nothing can have been written; tells whether something still waits. */
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

  /** Sends what need not wait. */
  #sendAll(): void {
    this.#sendAgain();
    if (this.#awaited !== undefined) return;
    const ahead = [...this.#tried, ...this.#asked];
    const { group, rest } = nextGroup(this.#queued, this.#settings.plansMax, ahead);
    if (group.length === 0) return;
    this.#queued = rest;
    const endPatience = this.#clock.after(patienceMs, () => this.#stopWaiting());
    this.#awaited = { batch: group, endPatience, isOverdue: false };
    void this.#write(group);
  }

  #sendAgain(): void {
    const free = this.#again.filter(isFree);
    // Those that are locked out come last, in turns: first the one whose last try is the longest ago. Of the others, the one that
    // has waited longest: parts of later groups do not keep it from its place.
    free.sort((one, other) => lockedTurn(one) - lockedTurn(other) || queuedMs(one) - queuedMs(other));
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
    if (lockedTurn(batch) === 0) return true;
    const tried = [...this.#sent].filter((each) => lockedTurn(each) > 0 && !this.#patient.has(each));
    return this.#patient.size + tried.length < lockedMax;
  }

  /** Leaves the write that is waited for aside, where there is a place, so that the next group can go. */
  #stopWaiting(): void {
    if (this.#awaited === undefined) return;
    this.#awaited.isOverdue = true;
    if (this.#leaveOverdueAside()) this.#sendAll();
  }

  /** Those that change its models wait for longer than others from now on. */
  #leaveOverdueAside(): boolean {
    if (this.#awaited?.isOverdue !== true || this.#asideCount >= asideMax) return false;
    holdUp(this.#awaited.batch);
    this.#forgetAwaited();
    return true;
  }

  #forgetAwaited(): void {
    this.#awaited?.endPatience();
    this.#awaited = undefined;
  }

  async #write(batch: Batch): Promise<void> {
    this.#sent.add(batch);
    for (const plan of batch) plan.send(this.#ticker.tick);
    const isPatient = batch.length === 1 && this.#patient.size < patientMax;
    if (isPatient) this.#patient.add(batch);
    const { again, unknown } = await writeBatch(batch, this.#manager, isPatient, (plan) =>
      // It may be told while batches are being sent.
      queueMicrotask(() => this.#waitsForLock(plan)),
    );
    this.#sent.delete(batch);
    this.#patient.delete(batch);
    if (this.#awaited?.batch === batch) this.#forgetAwaited();
    // What waits behind them waits behind their parts.
    this.#again.unshift(...again);
    for (const plan of again.flat()) {
      plan.putBack();
      plan.isHeldUp = true;
    }
    for (const plan of again.flat()) this.#refuseForLocked(plan);
    for (const { plan, error } of unknown) void this.#ask(plan, error);
    this.#goOnAfter(batch);
  }

  /** Asks the log where the outcome is not known. */
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

  /** Lets go on what waited for plans, and the executions of those that have their outcome. */
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
    this.#leaveOverdueAside();
    const sentBefore = this.#sent.size;
    this.#sendAll();
    // The next group is on its way before the executions of this one go on, which takes the process a while.
    if (this.#sent.size > sentBefore) this.#clock.after(0, () => tellAll(batch));
    else tellAll(batch);
    if (this.#hasWaiting) this.#ticker.start();
  }

  /** Fails plans that wait for their turn to be found stale: a model of theirs has a later version by now than they expect. */
  #refuseStale(written: ModelMap<number>): void {
    for (const plan of [...this.#again.flat(), ...this.#queued]) {
      const stale = plan.changes.changes.find(
        ({ kind, repository, model, expectedVersion }) =>
          kind === 'update' && expectedVersion < (written.get(repository.model, model.id.value) ?? 0),
      );
      if (stale !== undefined) this.#fail(plan, StaleRecordError.of(stale));
    }
  }

  /** Leaves out what has ended, and fails what depends on an aborted plan, in order: what depends on that is aborted, too. */
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

  /** Fails a plan that waits to be sent. */
  #fail(plan: PendingCommit, error: unknown): void {
    plan.fail(error);
    this.#pending.hide(plan);
  }
}

/** Why the plan of a handler is refused that would wait for a lock, or that needs one that takes long. */
export function lockedOut(shard: ShardIdentifier): ShardUnavailableError {
  return unwritten(shard, 'plans of handlers wait no longer', true);
}

/** Why a plan is refused of which nothing was sent. */
function unwritten(shard: ShardIdentifier, reason: string, isHeldUp: boolean): ShardUnavailableError {
  if (!isHeldUp) return new ShardUnavailableError(shard, reason);
  return new ShardUnavailableError(
    shard,
    `${reason}, because an earlier write of its models takes long: somebody else may hold a lock on a row of them; ` +
      'find who does in pg_locks and pg_stat_activity',
    { kind: 'locked' },
  );
}

function isLockedHandler(plan: PendingCommit): boolean {
  return plan.isOfHandler && plan.isLockedOut && plan.isPending;
}

function holdUp(batch: Batch): void {
  for (const plan of batch) plan.isHeldUp = true;
}

/** Whether a batch waits for no other one. Of plans that change the same model each depends on the one before. */
function isFree(batch: Batch): boolean {
  return batch.every(({ dependsOn }) =>
    dependsOn.every(({ plan }) => !plan.isPending || batch.includes(plan)),
  );
}

/** When a plan has last not got what others hold; 0 of a group, none of whose plans has been tried on its own. */
function lockedTurn([first]: Batch): number {
  return first?.lockedTurn ?? 0;
}

/** Since when a batch waits to be written, as the first of its plans. */
function queuedMs([first]: Batch): number {
  return first?.queuedMs ?? 0;
}

function tellAll(batch: Batch): void {
  for (const plan of batch) plan.tell();
}

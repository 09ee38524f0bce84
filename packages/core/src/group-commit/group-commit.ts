import type { Clock } from '../clock.js';
import type { GroupSettings } from '../config/settings.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { Observe } from '../observer.js';
import type { ChangeSet } from '../storage/change-set.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import { StaleRecordError } from '../storage/storage-errors.js';
import type { PersistOutcome, TransactionManager } from '../storage/transaction-manager.js';
import { CommitQueue, lockedOut } from './commit-queue.js';
import {
  PendingCommit,
  type PendingVersion,
  PendingVersions,
  firstOf,
  isContinued,
  isAborted,
  isOfHandler,
  isOfModel,
  dependencyAborted,
} from './pending-commit.js';

/** How long a read waits for the outcome of a plan that changes its model. */
const outcomeWaitMs = 1_000;

/** Writes the plans of concurrent executions together, and lets executions read what is still being written. */
export class GroupCommit {
  readonly pending: PendingVersions = new PendingVersions();
  readonly #databases: DatabaseRegistry;
  readonly #settings: GroupSettings;
  readonly #clock: Clock;
  readonly #observe: Observe;
  readonly #writers = new Map<ShardIdentifier, CommitQueue>();

  constructor(databases: DatabaseRegistry, settings: GroupSettings, clock: Clock, observe: Observe) {
    this.#databases = databases;
    this.#settings = settings;
    this.#clock = clock;
    this.#observe = observe;
  }

  /** Whether the change sets are a single one that a group can hold. All others are committed per shard. */
  takes(changeSets: readonly ChangeSet[]): boolean {
    const [only] = changeSets;
    if (only === undefined || changeSets.length > 1) return false;
    const { planSizeMax, planCharactersMax } = this.#settings;
    const { changes, events, unknownCommits } = only;
    if (unknownCommits !== undefined) return false;
    if (changes.length > planSizeMax || events.length > planSizeMax) return false;
    if (characterCount(only) > planCharactersMax) return false;
    return !this.#manager(only).isInTransaction();
  }

  /**
   * Queues a change set and resolves when it is committed.
   *
   * @param dependsOn the pending versions that its action read
   * @param onQueued called as soon as others may read what it stages
   * @throws StaleRecordError `stale-record` when something that it depends on was not written
   * @throws TransientStorageError `transient-storage` when the outcome of something that it depends on is unknown
   * @throws ShardUnavailableError `shard-unavailable` when too many plans wait already, or it has waited too long
   * @throws what {@link TransactionManager.persist} throws
   */
  async commit(
    changes: ChangeSet,
    dependsOn: readonly PendingVersion[],
    onQueued: () => void,
  ): Promise<PersistOutcome> {
    const manager = this.#manager(changes);
    const others = dependsOn.filter((base) => !isContinued(base, changes));
    if (others.length > 0) {
      await this.untilWritten(others, isOfHandler(changes));
      for (const base of others) refuseIfOvertaken(base, changes);
    }
    const plan = new PendingCommit(changes, dependsOn);
    const aborted = plan.abortedDependency;
    if (aborted !== undefined) throw dependencyAborted(aborted);
    plan.queuedMs = this.#clock.elapsedMs();
    this.#writer(manager).add(plan);
    onQueued();
    return plan.outcome;
  }

  /**
   * Waits until the plan of a pending version has its outcome, but not for long: when another transaction holds a lock on one of
   * its rows, the caller continues with what is committed. A handler does not wait at all for a plan that has already taken a
   * long time, because its events would occupy its places one after the other.
   */
  async awaitOutcome({ plan }: PendingVersion, isForHandler: boolean): Promise<void> {
    if (isForHandler && this.#takesLong(plan)) return;
    const over = Promise.withResolvers<void>();
    const endWait = this.#clock.after(outcomeWaitMs, over.resolve);
    await Promise.race([plan.ended, over.promise]);
    endWait();
  }

  /**
   * Waits until the plans that staged these models are committed. A handler does not wait while one of them takes a long time,
   * because its event is tried again later.
   *
   * @throws StaleRecordError `stale-record` when one of them is not written
   * @throws TransientStorageError `transient-storage` when it is unknown whether one of them is written
   * @throws ShardUnavailableError `shard-unavailable` when a handler waits no longer
   */
  async untilWritten(models: readonly PendingVersion[], isForHandler: boolean): Promise<void> {
    for (const base of models) {
      const { plan } = base;
      while (plan.isPending) {
        if (isForHandler && this.#takesLong(plan)) throw lockedOut(plan.changes.shard);
        await this.awaitOutcome(base, isForHandler);
      }
      if (isAborted(base)) throw dependencyAborted(base);
    }
  }

  /** Whether a plan, or one that is written before it, has waited so long that reads no longer wait for its outcome. */
  #takesLong(plan: PendingCommit): boolean {
    return plan.isHeldUp && this.#clock.elapsedMs() - firstOf(plan).queuedMs >= outcomeWaitMs;
  }

  #manager({ shard }: ChangeSet): TransactionManager {
    return this.#databases.transactionManager(shard);
  }

  #writer(manager: TransactionManager): CommitQueue {
    let writer = this.#writers.get(manager.shard);
    if (writer === undefined) {
      writer = new CommitQueue(manager, this.#settings, this.pending, this.#clock, this.#observe);
      this.#writers.set(manager.shard, writer);
    }
    return writer;
  }
}

/** Refuses a plan that expects an older version than one that its action has read and that is now committed: it is stale. */
function refuseIfOvertaken(base: PendingVersion, { changes }: ChangeSet): void {
  for (const change of changes) {
    if (isOfModel(base, change) && base.change.model.version > change.expectedVersion)
      throw StaleRecordError.of(change);
  }
}

/** Counts the action once for each event, because it is written with each of them. */
function characterCount({ action, changes, events, key }: ChangeSet): number {
  let count = key?.result?.length ?? 0;
  for (const { repository, row } of changes) count += repository.sizeOf?.(row) ?? 0;
  for (const { payload } of events) count += payload.length;
  return count + Math.max(events.length, 1) * (action.params.length + action.headers.length);
}

import type { GroupCommit } from '../group-commit/group-commit.js';
import type { PendingVersion } from '../group-commit/pending-commit.js';
import { type ModelClass, modelNameOf } from '../id/model-class.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { AnyEntity } from '../model/model.js';
import { copyStaged, readOf, uncommittedVersion } from '../model/provenance.js';
import type { Observe, Operation } from '../observer.js';
import type { ChangeSet } from '../storage/change-set.js';
import type { ModelSource } from '../storage/repository.js';
import { StaleRecordError } from '../storage/storage-errors.js';
import type { AttemptReads, TransactionManager } from '../storage/transaction-manager.js';
import type { KeyedMutex, ModelLock } from './keyed-mutex.js';
import { type CombinedReads, instantiate } from './read-batcher.js';

/** The maximum number of locks that one attempt holds; it continues without further ones. */
const locksMax = 64;
const deletedState = 'DELETED';

/**
 * The reads by id of one attempt: they share the locks that it holds and the pending versions that it has seen. A model that was
 * read is not read again: whoever asks for it in this attempt gets the same object.
 */
export class ReadContext implements AttemptReads {
  readonly #combined: CombinedReads;
  readonly #mutex: KeyedMutex | undefined;
  readonly #groups: GroupCommit;
  readonly #mayDepend: boolean;
  readonly #isOfHandler: boolean;
  readonly #observe: Observe;
  /** The timelines on which it reads the shards that it has accessed. */
  readonly #timelines = new Map<ShardIdentifier, number>();
  /** What {@link read} has returned or will return, by source and id. */
  readonly #known = new Map<object, Map<string, Promise<unknown>>>();
  #isOver = false;
  #dependsOn: PendingVersion[] = [];
  #held: ModelLock[] = [];
  #mayWait = true;
  /** Settles when this attempt no longer waits for a lock. */
  #waiting: Promise<void> | undefined;

  /**
   * @param combined combines its reads with those of other attempts
   * @param locks `undefined` when executions take no locks
   * @param groups the executor's group commit, with its pending versions
   * @param mayDepend whether this attempt may depend on what is not committed yet
   * @param isOfHandler whether a handler executes it; its event is tried again if the attempt fails
   */
  constructor(
    combined: CombinedReads,
    locks: KeyedMutex | undefined,
    groups: GroupCommit,
    {
      mayDepend,
      isOfHandler,
      observe,
    }: { readonly mayDepend: boolean; readonly isOfHandler: boolean; readonly observe: Observe },
  ) {
    this.#combined = combined;
    this.#mutex = locks;
    this.#groups = groups;
    this.#mayDepend = mayDepend;
    this.#isOfHandler = isOfHandler;
    this.#observe = observe;
  }

  /** The timeline on which this attempt reads a shard: that of the first access, which this call records. */
  timelineOf({ shard, timeline }: Pick<TransactionManager, 'shard' | 'timeline'>): number {
    const known = this.#timelines.get(shard);
    if (known !== undefined) return known;
    this.#timelines.set(shard, timeline);
    return timeline;
  }

  /**
   * Reads a model once this attempt has the lock on it, or has waited too long for the lock. If it was read before, even if it was
   * missing, returns the same; a read that failed is repeated.
   */
  read<M extends AnyEntity>(source: ModelSource<M>, id: string): Promise<M | undefined> {
    const known = this.#knownOf(source);
    const earlier = known.get(id);
    if (earlier !== undefined) return earlier;
    const reading = this.#observe(operationOf(source, 1), () => this.#read(source, id));
    known.set(id, reading);
    reading.catch(() => known.delete(id));
    return reading;
  }

  async #read<M extends AnyEntity>(source: ModelSource<M>, id: string): Promise<M | undefined> {
    const wait = this.#takeLock(source.model, id);
    if (wait !== undefined) await wait;
    const staged = this.#pendingOf(source, id);
    if (staged !== undefined) {
      const model = this.#see(source, staged);
      if (model !== undefined) return present(model);
      await this.#groups.awaitOutcome(staged, this.#isOfHandler);
    }
    return this.#latest(source, id, await this.#combined.read(source, id));
  }

  /**
   * Reads models without waiting for locks, as they will be when all pending plans are written; those that {@link read} has
   * returned or is reading are not read again. Fails if it is reading one of them and fails.
   */
  async readSeveral<M extends AnyEntity>(
    source: ModelSource<M>,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, M>> {
    const known = this.#knownOf(source);
    // Kept, because a read that fails meanwhile is forgotten, and its model would look as if it were missing.
    const earlier = new Map(ids.map((id) => [id, known.get(id)]));
    const unknown = ids.filter((id) => earlier.get(id) === undefined);
    const models = new Map<string, M>(
      unknown.length === 0
        ? []
        : await this.#observe(operationOf(source, unknown.length), () => this.#readSeveral(source, unknown)),
    );
    for (const id of ids) {
      const model = await (earlier.get(id) ?? known.get(id));
      if (model !== undefined) models.set(id, model);
    }
    return models;
  }

  /**
   * The reads of the policy of this attempt. They remember several models as they do one: what the policy has allowed is what
   * `perform` gets, or is stale.
   */
  get ofPolicy(): AttemptReads {
    return {
      read: (source, id) => this.read(source, id),
      readSeveral: (source, ids) => this.#readEach(source, ids),
      timelineOf: (manager) => this.timelineOf(manager),
    };
  }

  async #readEach<M extends AnyEntity>(
    source: ModelSource<M>,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, M>> {
    const models = new Map<string, M>();
    const read = async (id: string): Promise<void> => {
      const model = await this.read(source, id);
      if (model !== undefined) models.set(id, model);
    };
    await Promise.all(ids.map(read));
    return models;
  }

  async #readSeveral<M extends AnyEntity>(
    source: ModelSource<M>,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, M>> {
    if (!this.#mayDepend) {
      await Promise.all(ids.map((id) => this.#outcomeOf(source, id)));
      return instantiate(await source.readSeveral(ids));
    }
    const stored = await source.readSeveral(ids);
    const models = new Map<string, M>();
    for (const id of ids) {
      const model = this.#latest(source, id, stored.get(id)?.());
      if (model !== undefined) models.set(id, model);
    }
    return models;
  }

  /**
   * Ends reading when `perform` has ended. Reads that it did not wait for take no locks from now on, and the plan does not depend on
   * them.
   */
  end(): void {
    this.#isOver = true;
  }

  /** Hands over the pending versions that were read, to the caller who makes sure that they are committed. */
  handOver(): readonly PendingVersion[] {
    const dependsOn = this.#dependsOn;
    this.#dependsOn = [];
    return dependsOn;
  }

  /** Waits until the pending versions that were read are committed: see {@link GroupCommit.untilWritten}. */
  async untilWritten(): Promise<void> {
    await this.#groups.untilWritten(this.handOver(), this.#isOfHandler);
  }

  /** Releases the locks on models that the plan does not change. */
  keepLocksOf(staged: readonly Pick<ChangeSet, 'changes'>[]): void {
    this.#held = this.#held.filter((lock) => {
      const isKept = staged.some(({ changes }) =>
        changes.some(
          ({ repository, model }) => repository.model === lock.model && model.id.value === lock.id,
        ),
      );
      if (!isKept) this.#mutex?.release(lock);
      return isKept;
    });
  }

  /** Releases all locks. */
  releaseLocks(): void {
    for (const lock of this.#held) this.#mutex?.release(lock);
  }

  /**
   * Called while the commit waits for a lock in the database. A handler releases its locks: its event and the next ones are tried
   * again later, so they need not wait. A client keeps them, because the next executions would become stale one after the other.
   */
  holdUpLocks(): void {
    if (this.#isOfHandler) this.releaseLocks();
    else for (const lock of this.#held) this.#mutex?.holdUp(lock);
  }

  /**
   * Takes the lock on a model, and returns what to wait for before reading it. Only the first lock is waited for, because waiting
   * while holding one could end in a deadlock; meanwhile, other reads wait, too, and take no lock.
   */
  #takeLock(model: ModelClass<unknown>, id: string): Promise<void> | undefined {
    const mutex = this.#mutex;
    if (mutex === undefined || this.#isOver) return undefined;
    if (this.#waiting !== undefined) return this.#waiting.then(() => void this.#tryLock(mutex, model, id));
    if (this.#tryLock(mutex, model, id) || this.#held.length > 0 || !this.#mayWait) return undefined;
    this.#mayWait = false;
    this.#waiting = this.#waitForLock(mutex, model, id);
    return this.#waiting;
  }

  /** Takes a lock if it is free, unless this attempt has ended its reads or holds too many. */
  #tryLock(locks: KeyedMutex, model: ModelClass<unknown>, id: string): boolean {
    if (this.#isOver || this.#held.length >= locksMax) return false;
    const lock = locks.tryAcquire(model, id);
    if (lock !== undefined) this.#held.push(lock);
    return lock !== undefined;
  }

  async #waitForLock(locks: KeyedMutex, model: ModelClass<unknown>, id: string): Promise<void> {
    const lock = await locks.acquire(model, id, this.#isOfHandler);
    this.#waiting = undefined;
    if (lock === undefined) return;
    if (this.#isOver) locks.release(lock);
    else this.#held.push(lock);
  }

  /** The pending version of a model in the table that a source reads. */
  #pendingOf(source: ModelSource, id: string): PendingVersion | undefined {
    const staged = this.#groups.pending.get(source.model, id);
    return staged?.change.repository.table === source.table ? staged : undefined;
  }

  async #outcomeOf(source: ModelSource, id: string): Promise<void> {
    const staged = this.#pendingOf(source, id);
    if (staged !== undefined) await this.#groups.awaitOutcome(staged, this.#isOfHandler);
  }

  #knownOf<M extends AnyEntity>(source: ModelSource<M>): Map<string, Promise<M | undefined>> {
    let known = this.#known.get(source);
    if (known === undefined) this.#known.set(source, (known = new Map()));
    // The map's key is the source of its models.
    return known as Map<string, Promise<M | undefined>>;
  }

  /** Returns the pending version if it is newer than the stored one and this attempt may depend on it; otherwise the stored one. */
  #latest<M extends AnyEntity>(source: ModelSource<M>, id: string, stored: M | undefined): M | undefined {
    const staged = this.#pendingOf(source, id);
    if (staged === undefined || staged.change.model.version <= (stored?.version ?? 0)) return stored;
    return present(this.#see(source, staged) ?? stored);
  }

  /** Returns the pending version as a read will return it, if this attempt may depend on it; remembers that it does. */
  #see<M extends AnyEntity>(_source: ModelSource<M>, staged: PendingVersion): M | undefined {
    if (!this.#mayDepend || this.#isOver) return undefined;
    const { plan, change } = staged;
    const { shard, timeline } = plan.changes;
    // The pending version may never be written on the timeline on which this attempt commits.
    if (timeline !== (this.#timelines.get(shard) ?? timeline)) return undefined;
    const { repository, row } = change;
    // The model is of this class, because pending versions are kept by class.
    const model = repository.decode?.(row, shard) as M | undefined;
    if (model === undefined) return undefined;
    copyStaged(change.model, model);
    if (!this.#dependsOn.includes(staged)) this.#dependsOn.push(staged);
    return model;
  }

  /**
   * Makes the plan depend on the version of a model from which it stages the next one, wherever its action has the model from.
   *
   * @param managers those of the database to which the plan will be written, that of its shard first
   * @throws StaleRecordError `stale-record` when that version is neither committed nor the last pending one of this executor, or was read
   * on another timeline than this attempt reads
   */
  dependOn(base: AnyEntity, managers: readonly [TransactionManager, ...TransactionManager[]]): void {
    const read = readOf(base);
    const isOfDatabase = read !== undefined && managers.some((manager) => manager === read.manager);
    if (isOfDatabase && read.timeline !== this.timelineOf(managers[0])) throw staleBase(base);
    const staged = uncommittedVersion(base);
    if (staged === undefined) return;
    const isStaged = ({ change }: PendingVersion): boolean => change.model === staged;
    if (this.#dependsOn.some(isStaged)) return;
    const latest = this.#groups.pending.get(base.constructor as ModelClass<unknown>, base.id.value);
    if (latest === undefined || !isStaged(latest)) throw staleBase(base);
    this.#dependsOn.push(latest);
  }
}

function staleBase({ constructor, id, version }: AnyEntity): StaleRecordError {
  return new StaleRecordError(modelNameOf(constructor as ModelClass<unknown>), id.value, version);
}

/** Rows of state `DELETED` are never read. */
function present<M extends AnyEntity>(model: M | undefined): M | undefined {
  return model?.state === deletedState ? undefined : model;
}

function operationOf({ model }: ModelSource, count: number): Operation {
  return { kind: 'read', model: modelNameOf(model), count };
}

import { type ModelClass, ModelMap, modelNameOf } from '../id/model-class.js';
import type { Change, ChangeSet } from '../storage/change-set.js';
import { StaleRecordError, TransientStorageError } from '../storage/storage-errors.js';
import { type PersistOutcome, isOutcomeUnknown } from '../storage/transaction-manager.js';

/** A model as left by a plan that is not committed yet. */
export interface PendingVersion {
  readonly plan: PendingCommit;
  readonly change: Change;
}

/**
 * The state of a plan; `CommitQueue` shows the transitions. A plan waits in `queued` and `again`, and has ended in the last three:
 * `aborted` means that nothing of it was written, `unknown` that it may have been written or not.
 */
export type PlanState = 'queued' | 'sent' | 'again' | 'asked' | 'written' | 'aborted' | 'unknown';

/** A plan on its way into the database: what it writes, what it depends on, and how it ended. */
export class PendingCommit {
  readonly changes: ChangeSet;
  /** Settles with the outcome; awaited by the execution. */
  readonly outcome: Promise<PersistOutcome>;
  /** The tick of its queue at which it arrived. */
  queuedTick = 0;
  /** The time at which it arrived, in milliseconds. */
  queuedMs = 0;
  /** Whether it has found one of its rows locked by another session. */
  isLockedOut = false;
  /** Whether its write takes so long that others do not wait for it, or it changes a model of such a plan. */
  isHeldUp = false;
  /** How often it was tried briefly on its own and did not get a lock. */
  lockedCount = 0;
  /** The turn of the last such try, counted over all plans; 0 if there was none. */
  lockAttempt = 0;
  /** Whether a group cannot hold it. */
  isSingle = false;
  #dependsOn: readonly PendingVersion[];
  #resolve!: (outcome: PersistOutcome) => void;
  #reject!: (error: unknown) => void;
  #decided: PersistOutcome | undefined;
  #state: PlanState = 'queued';
  #sentTick: number | undefined;

  constructor(changes: ChangeSet, dependsOn: readonly PendingVersion[]) {
    this.changes = changes;
    this.#dependsOn = dependsOn;
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** The present state. When the plan has ended, it is set before the execution continues. */
  get state(): PlanState {
    return this.#state;
  }

  /** Whether it has no outcome yet. */
  get isPending(): boolean {
    return this.#state !== 'written' && this.#state !== 'aborted' && this.#state !== 'unknown';
  }

  /** Whether it waits to be sent, so that it can still be aborted. */
  get isWaiting(): boolean {
    return this.#state === 'queued' || this.#state === 'again';
  }

  /** The tick in which it was first sent, if it was. */
  get sentTick(): number | undefined {
    return this.#sentTick;
  }

  /**
   * The pending versions that its action read: if one of them is not written, neither is this plan. The list is emptied when the
   * plan has ended, because each version refers to its own plan.
   */
  get dependsOn(): readonly PendingVersion[] {
    return this.#dependsOn;
  }

  /** Whether a handler executes its action: its event is delivered again if it fails. */
  get isOfHandler(): boolean {
    return isOfHandler(this.changes);
  }

  /** A pending version that it depends on and that was not written, as far as is known. */
  get abortedDependency(): PendingVersion | undefined {
    return this.#dependsOn.find(isAborted);
  }

  /** Resolves when it has its outcome, whichever it is. */
  get ended(): Promise<unknown> {
    return this.outcome.catch(() => undefined);
  }

  /** Whether it stages the version that follows a pending version, which its action read. */
  continues(base: PendingVersion): boolean {
    return this.#dependsOn.includes(base) && isContinued(base, this.changes);
  }

  /** Whether there is a model that both plans change. */
  sharesModel(other: PendingCommit): boolean {
    return other.changes.changes.some((change) =>
      this.changes.changes.some((own) => isOfModel({ plan: other, change }, own)),
    );
  }

  /** `queued` or `again` → `sent`. */
  send(tick: number): void {
    this.#state = 'sent';
    this.#sentTick ??= tick;
  }

  /** `sent` → `again`. */
  putBack(): void {
    this.#state = 'again';
  }

  /** `sent` → `asked`: the answer was lost, so the log is asked. */
  ask(): void {
    this.#state = 'asked';
  }

  /** `sent` or `asked` → `written`, or `aborted` if its key is taken or it was written before. Its execution waits for `tell`. */
  decide(outcome: PersistOutcome): void {
    this.#end(outcome === 'written' ? 'written' : 'aborted');
    this.#decided = outcome;
  }

  /** Lets its execution continue, if the outcome is decided. */
  tell(): void {
    if (this.#decided !== undefined) this.#resolve(this.#decided);
  }

  /** Any pending state → `aborted`, or `unknown` if the error says so. Its execution continues at once. */
  fail(error: unknown): void {
    this.#end(isOutcomeUnknown(error) ? 'unknown' : 'aborted');
    this.#reject(error);
  }

  #end(state: PlanState): void {
    this.#state = state;
    this.#dependsOn = [];
  }
}

/** Whether a handler executes the action of a change set. */
export function isOfHandler({ key }: ChangeSet): boolean {
  return key?.source !== undefined;
}

/** Follows the pending plans that a plan depends on to one that depends on none; returns the plan itself if it depends on none. */
export function firstOf(plan: PendingCommit): PendingCommit {
  let first = plan;
  for (;;) {
    const base = first.dependsOn.find(({ plan: { isPending } }) => isPending);
    if (base === undefined) return first;
    first = base.plan;
  }
}

/** Whether a change set stages the version that directly follows a pending version. */
export function isContinued(base: PendingVersion, changes: ChangeSet): boolean {
  const { version } = base.change.model;
  return changes.changes.some((change) => isOfModel(base, change) && change.expectedVersion === version);
}

/** Whether a pending version and a change belong to the same model. */
export function isOfModel({ change: { repository, model } }: PendingVersion, change: Change): boolean {
  return change.repository.model === repository.model && change.model.id.value === model.id.value;
}

/** Whether a pending version was not written, or its outcome is unknown. */
export function isAborted({ plan: { state } }: PendingVersion): boolean {
  return state === 'aborted' || state === 'unknown';
}

const dependencyErrors = new WeakSet();

/**
 * The error of a plan that was not written because it depends on a model that was not. Reading again can help.
 *
 * If it is unknown whether that model was written, the plan may not be stale. But it cannot be written either, because the
 * version that it expects may belong to another action by now.
 */
export function dependencyAborted({
  plan,
  change,
}: PendingVersion): StaleRecordError | TransientStorageError {
  const { model, repository } = change;
  const name = modelNameOf(repository.model);
  const error =
    plan.state === 'unknown'
      ? new TransientStorageError(
          plan.changes.shard,
          `${name} ${model.id.value} was read in the state left by an action whose outcome is unknown`,
        )
      : new StaleRecordError(name, model.id.value, model.version);
  dependencyErrors.add(error);
  return error;
}

/** Whether an attempt failed only because a model that it depends on was not written. */
export function isDependencyAborted(error: unknown): boolean {
  return dependencyErrors.has(error as WeakKey);
}

/** The models of all pending plans, each as the last of its plans leaves it. */
export class PendingVersions {
  readonly #latest = new ModelMap<PendingVersion>();

  /** The model as it will be when all pending plans are written; `undefined` when none of them changes it. */
  get(model: ModelClass<unknown>, id: string): PendingVersion | undefined {
    const latest = this.#latest.get(model, id);
    return latest?.plan.isPending === true ? latest : undefined;
  }

  /** Shows what a plan stages, except for models of which another plan has staged a version that this plan does not follow. */
  show(plan: PendingCommit): void {
    for (const change of plan.changes.changes) {
      const { model } = change.repository;
      const id = change.model.id.value;
      const latest = this.get(model, id);
      if (latest === undefined || plan.continues(latest)) this.#latest.set(model, id, { plan, change });
    }
  }

  /** Whether a plan changes a model that is also changed by a plan that is held up. */
  areHeldUp({ changes: { changes } }: PendingCommit): boolean {
    return changes.some(({ repository, model }) => {
      const staged = this.get(repository.model, model.id.value);
      return staged?.plan.isHeldUp === true;
    });
  }

  /** Forgets what a plan staged, once it has its outcome. */
  hide(plan: PendingCommit): void {
    for (const { repository, model } of plan.changes.changes) {
      const id = model.id.value;
      if (this.#latest.get(repository.model, id)?.plan === plan) this.#latest.delete(repository.model, id);
    }
  }
}

import { StaleRecordError, TransientStorageError } from '../errors/storage-errors.js';
import { type ModelClass, ModelMap, modelNameOf } from '../model/model-class.js';
import type { Change, ChangeSet } from '../storage/change-set.js';
import { type PersistOutcome, isOutcomeUnknown } from '../storage/transaction-manager.js';

/** A model as a plan leaves it that is not committed yet. */
export interface PendingVersion {
  readonly plan: PendingCommit;
  readonly change: Change;
}

/**
 * Where a plan stands; the ways from one state to another are drawn at `CommitQueue`. It waits in the states `queued` and `again`, and
 * has ended in the last three: `aborted` when nothing of it was written, `unknown` when nobody knows.
 */
export type PlanState = 'queued' | 'sent' | 'again' | 'asked' | 'written' | 'aborted' | 'unknown';

/** A plan on its way into the database: what it writes, what it depends on, and how it ended. */
export class PendingCommit {
  readonly changes: ChangeSet;
  /** Settles with the outcome; awaited by the execution. */
  readonly outcome: Promise<PersistOutcome>;
  /** Since which tick of its writer it waits to be sent. */
  queuedTick = 0;
  /** Since when it waits to be written, in milliseconds. */
  queuedMs = 0;
  /** Whether it has found a row of it locked by somebody else. */
  isLockedOut = false;
  /** Whether it takes longer than others are to wait for, or changes a model of one that does. */
  isHeldUp = false;
  /** How often it was tried for a moment, on its own, and did not get what others hold. */
  lockedCount = 0;
  /** When that was the last time, in the order of all that do not get theirs; 0 when it was never. */
  lockedTurn = 0;
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

  /** Where it stands; that it has ended is known before its execution is told. */
  get state(): PlanState {
    return this.#state;
  }

  /** Whether it has no outcome yet. */
  get isPending(): boolean {
    return this.#state !== 'written' && this.#state !== 'aborted' && this.#state !== 'unknown';
  }

  /** Whether it waits to be sent, so that it can be aborted with nothing of it written. */
  get isWaiting(): boolean {
    return this.#state === 'queued' || this.#state === 'again';
  }

  /** In which tick it was sent for the first time, if it was. */
  get sentTick(): number | undefined {
    return this.#sentTick;
  }

  /**
   * The pending versions that its action read: when one of them is not written, neither is this plan. Forgotten when the plan
   * has ended, because each of them holds its own plan.
   */
  get dependsOn(): readonly PendingVersion[] {
    return this.#dependsOn;
  }

  /** Whether a handler executes its action, whose event is delivered again when it fails. */
  get isOfHandler(): boolean {
    return isOfHandler(this.changes);
  }

  /** What it depends on and will never be written, as far as anybody knows, if there is such a model. */
  get abortedDependency(): PendingVersion | undefined {
    return this.#dependsOn.find(isAborted);
  }

  /** Resolves when it has its outcome, whatever that is. */
  get ended(): Promise<unknown> {
    return this.outcome.catch(() => undefined);
  }

  /** Whether it stages the version that follows a pending version, which its action read. */
  continues(base: PendingVersion): boolean {
    return this.#dependsOn.includes(base) && isContinued(base, this.changes);
  }

  /** Whether both change the same model. */
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

  /** `sent` or `asked` → `written`, or `aborted` because its key is taken or it was written before; its execution goes on when it is told. */
  decide(outcome: PersistOutcome): void {
    this.#end(outcome === 'written' ? 'written' : 'aborted');
    this.#decided = outcome;
  }

  /** Lets its execution go on, when it has its outcome. */
  tell(): void {
    if (this.#decided !== undefined) this.#resolve(this.#decided);
  }

  /** Every state in which it is pending → `aborted`, or `unknown` where the error says so; its execution goes on. */
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

/** Of the plans that are written before a plan, because it depends on them, one that waits for none of them; else the plan itself. */
export function firstOf(plan: PendingCommit): PendingCommit {
  let first = plan;
  for (;;) {
    const base = first.dependsOn.find(({ plan: { isPending } }) => isPending);
    if (base === undefined) return first;
    first = base.plan;
  }
}

/** Whether a change set stages the version that follows a pending version, and not one that follows an older or a newer one. */
export function isContinued(base: PendingVersion, changes: ChangeSet): boolean {
  const { version } = base.change.model;
  return changes.changes.some((change) => isOfModel(base, change) && change.expectedVersion === version);
}

/** Whether a change is of the model that was staged. */
export function isOfModel({ change: { repository, model } }: PendingVersion, change: Change): boolean {
  return change.repository.model === repository.model && change.model.id.value === model.id.value;
}

/** Whether a pending version was not written, or its outcome is unknown. */
export function isAborted({ plan: { state } }: PendingVersion): boolean {
  return state === 'aborted' || state === 'unknown';
}

const dependencyErrors = new WeakSet();

/**
 * The error of a plan of which nothing was written, because it depends on a model that was not: fresh reads can help.
 *
 * Where it is unknown whether that model was written, the plan is not certainly stale; but it cannot be written either,
 * because the version that it expects may be another one's by now.
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
          `${name} ${model.id.value} was read as an action left it whose outcome is not known`,
        )
      : new StaleRecordError(name, model.id.value, model.version);
  dependencyErrors.add(error);
  return error;
}

/** Whether an attempt failed because something on which it was built was not written: no fault of its own. */
export function isDependencyAborted(error: unknown): boolean {
  return dependencyErrors.has(error as WeakKey);
}

/** The models of all plans that are queued or being written, as the last plan of each leaves them. */
export class PendingVersions {
  readonly #latest = new ModelMap<PendingVersion>();

  /** The model as it will be when everything that is queued is written; `undefined` when nothing of it is. */
  get(model: ModelClass<unknown>, id: string): PendingVersion | undefined {
    const latest = this.#latest.get(model, id);
    return latest?.plan.isPending === true ? latest : undefined;
  }

  /** Shows what a plan stages; not where another plan was faster, which this one does not continue. */
  show(plan: PendingCommit): void {
    for (const change of plan.changes.changes) {
      const { model } = change.repository;
      const id = change.model.id.value;
      const latest = this.get(model, id);
      if (latest === undefined || plan.continues(latest)) this.#latest.set(model, id, { plan, change });
    }
  }

  /** Whether a plan changes a model that is staged by one that is held up. */
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

import { FrameworkError } from '../errors/framework-error.js';
import { ModelMap } from '../id/model-class.js';
import type { Change } from '../storage/change-set.js';
import type { KeyScope } from '../storage/idempotency-keys.js';
import { CommitOutcomeUnknownError } from '../storage/storage-errors.js';
import {
  type GroupOutcome,
  type PersistOptions,
  type TransactionManager,
  isOutcomeUnknown,
} from '../storage/transaction-manager.js';
import type { PendingCommit } from './pending-commit.js';

/** How many brief tries a plan gets before it fails, in case the reason is something other than a lock. */
const lockedMax = 50;

/** The number of brief tries, of all plans, that have failed to get a lock. */
let lockAttempts = 0;

/** Plans that are written together, in order. */
export type Batch = readonly PendingCommit[];

/** The plans of a batch that have no outcome yet. */
export interface UnresolvedBatch {
  /** Smaller batches to be sent again, in order; in parallel if they share no model. */
  readonly again: readonly Batch[];
  /** Plans whose outcome must be looked up in the log. */
  readonly unknown: readonly { readonly plan: PendingCommit; readonly error: unknown }[];
}

const nothing: UnresolvedBatch = { again: [], unknown: [] };

/**
 * Writes a batch and gives each plan its outcome, if there is one. The caller still has to tell the executions. Never rejects.
 *
 * If a batch fails as a whole, it is divided, so that in the end only the plan at fault fails: into parts that have no
 * model in common, or, if all plans are connected by their models, into halves.
 *
 * @param waitsForLocks whether a single plan waits for locks as long as a statement may take, as an ordinary commit does; otherwise
 * it waits only briefly, as a group of one if a group can hold it, and is sent again if that was too short
 * @param onLockedOut called when a single plan that is patient begins to wait for a lock
 */
export async function writeBatch(
  batch: Batch,
  manager: TransactionManager,
  waitsForLocks: boolean,
  onLockedOut: (plan: PendingCommit) => void,
): Promise<UnresolvedBatch> {
  const [only] = batch;
  if (only === undefined) return nothing;
  if (waitsForLocks || only.isSingle) {
    const options = { shortLockWait: !waitsForLocks, onLockedOut: () => onLockedOut(only) };
    return writeSingle(only, manager, options);
  }
  let outcomes: readonly GroupOutcome[];
  try {
    outcomes = await manager.persistAll(batch.map(({ changes }) => changes));
  } catch (error) {
    return undecided(batch, error);
  }
  return settle(batch, outcomes);
}

async function writeSingle(
  plan: PendingCommit,
  manager: TransactionManager,
  options: PersistOptions,
): Promise<UnresolvedBatch> {
  try {
    plan.decide(await manager.persist(plan.changes, options));
  } catch (error) {
    if (isOutcomeUnknown(error)) return { again: [], unknown: [{ plan, error }] };
    const code = FrameworkError.find(error)?.code;
    if (isLockedOut(plan, code)) return { again: [[plan]], unknown: [] };
    plan.fail(error);
  }
  return nothing;
}

function settle(batch: Batch, outcomes: readonly GroupOutcome[]): UnresolvedBatch {
  const again: Batch[] = [];
  const unknown: UnresolvedBatch['unknown'][number][] = [];
  batch.forEach((plan, index) => {
    const outcome = outcomes[index] ?? 'single';
    if (outcome === 'single') {
      plan.isSingle = true;
      again.push([plan]);
    } else if (typeof outcome === 'string') plan.decide(outcome);
    else if (isOutcomeUnknown(outcome)) unknown.push({ plan, error: outcome });
    else plan.fail(outcome);
  });
  return { again, unknown };
}

function undecided(batch: Batch, error: unknown): UnresolvedBatch {
  // Managers report an unknown outcome plan by plan. One error for the whole batch lacks the ids under which the log has the plans.
  if (isOutcomeUnknown(error)) return { again: [], unknown: batch.map((plan) => unknownOf(plan, error)) };
  const code = FrameworkError.find(error)?.code;
  const [only] = batch;
  // A shard that cannot serve would not serve the parts either.
  if (
    code === 'shard-unavailable' ||
    code === 'databases-closed' ||
    (batch.length === 1 && isOwnError(only, code))
  ) {
    for (const plan of batch) plan.fail(error);
    return nothing;
  }
  return { again: batch.length === 1 ? [batch] : parts(batch), unknown: [] };
}

/** Whether a plan should be tried again because a brief try did not get a lock; counts the tries. */
function isLockedOut(plan: PendingCommit, code: string | undefined): boolean {
  if (code !== 'transient-storage') return false;
  plan.isLockedOut = true;
  plan.lockAttempt = ++lockAttempts;
  return ++plan.lockedCount <= lockedMax;
}

/** Whether the error of a group of one is that of its plan; if not, records in the plan how to send it again. */
function isOwnError(plan: PendingCommit | undefined, code: string | undefined): boolean {
  if (plan === undefined) return true;
  if (code === 'transient-storage') return !isLockedOut(plan, code);
  plan.isSingle = true;
  return false;
}

/** The log is asked for the plan's own action, and not for the session of the error, which may belong to another plan. */
function unknownOf(
  plan: PendingCommit,
  cause: CommitOutcomeUnknownError,
): UnresolvedBatch['unknown'][number] {
  const { id } = plan.changes.action;
  return { plan, error: new CommitOutcomeUnknownError(cause.shard, id, { cause }) };
}

function parts(batch: Batch): readonly Batch[] {
  const chains = chainsOf(batch);
  if (chains.length > 1) return chains;
  const middle = Math.ceil(batch.length / 2);
  return [batch.slice(0, middle), batch.slice(middle)];
}

/** Divides a batch into chains of plans that are connected because they change the same models, each in order. */
function chainsOf(batch: Batch): readonly Batch[] {
  const parents = new Map<number, number>();
  const rootOf = (index: number): number => {
    const parent = parents.get(index) ?? index;
    return parent === index ? index : rootOf(parent);
  };
  const firsts = new ModelMap<number>();
  batch.forEach(({ changes: { changes } }, index) => {
    for (const { repository, model } of changes) {
      const first = firsts.get(repository.model, model.id.value);
      if (first === undefined) firsts.set(repository.model, model.id.value, index);
      else parents.set(rootOf(index), rootOf(first));
    }
  });
  const chains = Map.groupBy(batch.keys(), rootOf);
  return [...chains.values()].map((indices) => batch.filter((_plan, index) => indices.includes(index)));
}

/** A queue, divided into its next group and the rest. */
export interface NextGroup {
  /** What can be written together, in order. */
  readonly group: readonly PendingCommit[];
  /** What has to wait, in order. */
  readonly rest: PendingCommit[];
}

/**
 * Chooses from the front of a queue what can be written in one transaction.
 *
 * Several plans that change the same model can be in one group only if each continues the one before. The others wait, because
 * they may be valid only if the first one is not written; and so do plans with the same idempotency key. A plan that waits is not
 * overtaken by one that changes one of its models, so the outcomes are the same as if the plans were written one after the other.
 * A plan that waits for one that is held up is held up, too.
 *
 * @param ahead the plans that come before the queue and have no outcome yet
 */
export function nextGroup(
  queue: readonly PendingCommit[],
  plansMax: number,
  ahead: readonly PendingCommit[] = [],
): NextGroup {
  const group: PendingCommit[] = [];
  const rest: PendingCommit[] = [];
  const claims = new Claims(ahead);
  for (const [index, plan] of queue.entries()) {
    if (group.length === plansMax) return { group, rest: rest.concat(queue.slice(index)) };
    const isFit = claims.admit(plan);
    plan.isHeldUp = claims.holdUp(plan);
    (isFit ? group : rest).push(plan);
    if (isFit) claims.join(plan);
    else claims.reserve(plan);
  }
  return { group, rest };
}

/** The last plan so far that changes a certain model. */
interface Writer {
  readonly plan: PendingCommit;
  /** The change that plans of the same group may continue; `undefined` if the plan is not in the group. */
  readonly change: Change | undefined;
}

/** Which models and idempotency keys plans are about to change, so that others wait for them. */
class Claims {
  readonly #writers = new ModelMap<Writer>();
  readonly #keys = new Set<string>();

  /** @param ahead plans that come first: others that change the same models wait for them */
  constructor(ahead: readonly PendingCommit[]) {
    for (const plan of ahead) this.reserve(plan);
  }

  /** Whether a plan can be in the same group as those that joined. */
  admit(plan: PendingCommit): boolean {
    const { changes, key } = plan.changes;
    if (key !== undefined && this.#keys.has(keyText(key))) return false;
    const linked = new Set<PendingCommit>();
    for (const { repository, model } of changes) {
      const writer = this.#writers.get(repository.model, model.id.value);
      if (writer === undefined) continue;
      if (!isFollowedBy(writer, plan)) return false;
      linked.add(writer.plan);
    }
    // Everything that the plan depends on must have ended, or be in this group and change a model that the plan changes, too.
    return plan.dependsOn.every((base) => !base.plan.isPending || linked.has(base.plan));
  }

  /** Whether a plan waits for one that is held up. */
  holdUp({ changes: { changes } }: PendingCommit): boolean {
    return changes.some(
      ({ repository, model }) => this.#writers.get(repository.model, model.id.value)?.plan.isHeldUp === true,
    );
  }

  /** Takes a plan into the group. */
  join(plan: PendingCommit): void {
    this.#claim(plan, (change) => ({ plan, change }));
  }

  /** Makes all other plans that change the same models wait. */
  reserve(plan: PendingCommit): void {
    this.#claim(plan, () => ({ plan, change: undefined }));
  }

  #claim(plan: PendingCommit, writer: (change: Change) => Writer): void {
    const { changes, key } = plan.changes;
    for (const change of changes)
      this.#writers.set(change.repository.model, change.model.id.value, writer(change));
    if (key !== undefined) this.#keys.add(keyText(key));
  }
}

/** Compares changes, because there may be several objects for the pending version of one change. */
function isFollowedBy({ change }: Writer, plan: PendingCommit): boolean {
  return plan.dependsOn.some((base) => base.change === change && plan.continues(base));
}

function keyText({ namespace, principal, key }: KeyScope): string {
  return JSON.stringify([namespace, principal, key]);
}

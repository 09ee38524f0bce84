import { FrameworkError } from '../errors/framework-error.js';
import { CommitOutcomeUnknownError } from '../errors/storage-errors.js';
import { ModelMap } from '../model/model-class.js';
import type { Change } from '../storage/change-set.js';
import type { KeyScope } from '../storage/idempotency-keys.js';
import {
  type GroupOutcome,
  type PersistOptions,
  type TransactionManager,
  isOutcomeUnknown,
} from '../storage/transaction-manager.js';
import type { PendingCommit } from './pending-commit.js';

/** How often a plan is tried for a moment before it fails, in case that something else than a lock is in its way. */
const lockedMax = 50;

/** How many tries for a moment have not got what others hold. */
let lockedTurns = 0;

/** Plans that are written together, in order. */
export type Batch = readonly PendingCommit[];

/** What a batch has left undecided. */
export interface Undecided {
  /** What is to be written again, in order: smaller batches, which may go side by side where they share no model. */
  readonly again: readonly Batch[];
  /** Plans of which the log is to be asked whether they are committed. */
  readonly unknown: readonly { readonly plan: PendingCommit; readonly error: unknown }[];
}

const nothing: Undecided = { again: [], unknown: [] };

/**
 * Writes a batch, and gives each plan its outcome where there is one; those that are decided are still to be told. Never rejects.
 *
 * A batch that fails as a whole is parted, so that only the culprit fails: into the plans that have no model in common,
 * or, where all of them hang together, into halves.
 *
 * @param isPatient whether a single plan waits for locks as long as a statement may take, as an ordinary commit; else it waits
 * for a moment, as a group of one if a group can hold it, and is to be written again when that was too short
 * @param onLockedOut called when a single plan that is patient begins to wait for a lock
 */
export async function writeBatch(
  batch: Batch,
  manager: TransactionManager,
  isPatient: boolean,
  onLockedOut: (plan: PendingCommit) => void,
): Promise<Undecided> {
  const [only] = batch;
  if (only === undefined) return nothing;
  if (isPatient || only.isSingle) {
    const options = { shortLockWait: !isPatient, onLockedOut: () => onLockedOut(only) };
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
): Promise<Undecided> {
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

function settle(batch: Batch, outcomes: readonly GroupOutcome[]): Undecided {
  const again: Batch[] = [];
  const unknown: Undecided['unknown'][number][] = [];
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

function undecided(batch: Batch, error: unknown): Undecided {
  // The port tells this of each plan. What it has told of all says nothing of where to look for one of them.
  if (isOutcomeUnknown(error)) return { again: [], unknown: batch.map((plan) => unknownOf(plan, error)) };
  const code = FrameworkError.find(error)?.code;
  const [only] = batch;
  // A shard that cannot serve would not serve the parts either.
  if (code === 'shard-unavailable' || (batch.length === 1 && isOwnError(only, code))) {
    for (const plan of batch) plan.fail(error);
    return nothing;
  }
  return { again: batch.length === 1 ? [batch] : parts(batch), unknown: [] };
}

/** Whether a plan that was tried for a moment is to be tried again, because a lock was in its way; counts how often. */
function isLockedOut(plan: PendingCommit, code: string | undefined): boolean {
  if (code !== 'transient-storage') return false;
  plan.isLockedOut = true;
  plan.lockedTurn = ++lockedTurns;
  return ++plan.lockedCount <= lockedMax;
}

/** Whether an error of a group of one is that of its plan; notes what is to be done with the plan otherwise. */
function isOwnError(plan: PendingCommit | undefined, code: string | undefined): boolean {
  if (plan === undefined || code === 'constraint-violation') return true;
  if (code === 'transient-storage') return !isLockedOut(plan, code);
  plan.isSingle = true;
  return false;
}

/** A plan is looked for by its own action, not by the session of an error, in which the event of another one may be. */
function unknownOf(plan: PendingCommit, cause: CommitOutcomeUnknownError): Undecided['unknown'][number] {
  const { id } = plan.changes.action;
  return { plan, error: new CommitOutcomeUnknownError(cause.shard, id, { cause }) };
}

function parts(batch: Batch): readonly Batch[] {
  const chains = chainsOf(batch);
  if (chains.length > 1) return chains;
  const middle = Math.ceil(batch.length / 2);
  return [batch.slice(0, middle), batch.slice(middle)];
}

/** The plans that hang together because they change the same models, each chain in order. */
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

/** A queue, divided. */
export interface NextGroup {
  /** What can be written together, in order. */
  readonly group: readonly PendingCommit[];
  /** What has to wait, in order. */
  readonly rest: PendingCommit[];
}

/**
 * Chooses from the front of a queue what can be written in one transaction.
 *
 * Of several plans that change one model only those go together of which each continues the one before; the others wait,
 * because they may be valid only if the first one is not. So do plans under the same idempotency key. What waits is not
 * overtaken by a plan that changes one of its models: the outcomes are those of one plan after the other. What waits for one
 * that is held up is held up itself.
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

/** The last plan so far that changes a model. */
interface Writer {
  readonly plan: PendingCommit;
  /** What plans of the same group may follow; `undefined` where the plan is not in the group. */
  readonly change: Change | undefined;
}

/** Which models and idempotency keys plans are about to change, so that others wait for them. */
class Claims {
  readonly #writers = new ModelMap<Writer>();
  readonly #keys = new Set<string>();

  /** @param ahead plans for which all others wait */
  constructor(ahead: readonly PendingCommit[]) {
    for (const plan of ahead) this.reserve(plan);
  }

  /** Whether a plan can be in one group with those that joined. */
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
    // What it depends on is written already, aborted, or in this group with a model that both change.
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

  /** Makes all other plans wait that change what this plan changes. */
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

/** Pending versions of one change are equal, whoever has looked them up. */
function isFollowedBy({ change }: Writer, plan: PendingCommit): boolean {
  return plan.dependsOn.some((base) => base.change === change && plan.continues(base));
}

function keyText({ namespace, principal, key }: KeyScope): string {
  return JSON.stringify([namespace, principal, key]);
}

import { isOutcomeUnknown } from '../action/unknown-commits.js';
import { FrameworkException } from '../errors/framework-exception.js';
import { CommitOutcomeUnknownException } from '../errors/storage-exceptions.js';
import { ModelMap } from '../model/model-map.js';
import type { GroupOutcome, TransactionManager } from '../persistence/transaction-manager.js';
import type { QueuedPlan } from './queued-plan.js';

/** Plans that are written together, in order; one of a single plan is an ordinary commit. */
export type Batch = readonly QueuedPlan[];

/** What a batch has left undecided. */
export interface Undecided {
  /** What is to be written again, in order: smaller batches, which may go side by side where they share no model. */
  readonly again: readonly Batch[];
  /** Plans of which the log is to be asked whether they are committed. */
  readonly unknown: readonly { readonly plan: QueuedPlan; readonly error: unknown }[];
}

const nothing: Undecided = { again: [], unknown: [] };

/**
 * Writes a batch, and gives each plan its outcome where there is one; those that are decided are still to be told. Never rejects.
 *
 * A batch that fails as a whole is parted, so that only the culprit fails: into the plans that have no model in common,
 * or, where all of them hang together, into halves.
 */
export async function writeBatch(batch: Batch, manager: TransactionManager): Promise<Undecided> {
  const [only] = batch;
  if (only === undefined) return nothing;
  if (batch.length === 1) return writeAlone(only, manager);
  let outcomes: readonly GroupOutcome[];
  try {
    outcomes = await manager.persistAll(batch.map(({ changes }) => changes));
  } catch (error) {
    return undecided(batch, error);
  }
  return settle(batch, outcomes);
}

async function writeAlone(plan: QueuedPlan, manager: TransactionManager): Promise<Undecided> {
  try {
    plan.decide(await manager.persist(plan.changes));
  } catch (error) {
    if (isOutcomeUnknown(error)) return { again: [], unknown: [{ plan, error }] };
    plan.fail(error);
  }
  return nothing;
}

function settle(batch: Batch, outcomes: readonly GroupOutcome[]): Undecided {
  const again: Batch[] = [];
  const unknown: Undecided['unknown'][number][] = [];
  batch.forEach((plan, index) => {
    const outcome = outcomes[index] ?? 'alone';
    if (outcome === 'alone') again.push([plan]);
    else if (typeof outcome === 'string') plan.decide(outcome);
    else if (isOutcomeUnknown(outcome)) unknown.push({ plan, error: outcome });
    else plan.fail(outcome);
  });
  return { again, unknown };
}

function undecided(batch: Batch, error: unknown): Undecided {
  // The port tells this of each plan. What it has told of all says nothing of where to look for one of them.
  if (isOutcomeUnknown(error)) return { again: [], unknown: batch.map((plan) => unknownOf(plan, error)) };
  // A shard that cannot serve would not serve the parts either.
  if (FrameworkException.find(error)?.code !== 'shard-unavailable')
    return { again: parts(batch), unknown: [] };
  for (const plan of batch) plan.fail(error);
  return nothing;
}

/** A plan is looked for by its own action, not by the session of an error, in which the event of another one may be. */
function unknownOf(plan: QueuedPlan, cause: CommitOutcomeUnknownException): Undecided['unknown'][number] {
  const { id } = plan.changes.action;
  return { plan, error: new CommitOutcomeUnknownException(cause.shard, id, { cause }) };
}

function parts(batch: Batch): readonly Batch[] {
  const chains = chainsOf(batch);
  if (chains.length > 1) return chains;
  const middle = Math.ceil(batch.length / 2);
  return [batch.slice(0, middle), batch.slice(middle)];
}

/** The plans that hang together because they change the same models, each chain in order. */
function chainsOf(batch: Batch): readonly Batch[] {
  const parents = [...batch.keys()];
  const rootOf = (index: number): number => {
    const parent = parents[index] ?? index;
    return parent === index ? index : rootOf(parent);
  };
  const firsts = new ModelMap<number>();
  batch.forEach(({ changes: { changes } }, index) => {
    for (const { repository, model } of changes) {
      const first = firsts.get(repository.model, model.id.value);
      if (first === undefined) firsts.set(repository.model, model.id.value, index);
      else parents[rootOf(index)] = rootOf(first);
    }
  });
  const chains = Map.groupBy(batch.keys(), rootOf);
  return [...chains.values()].map((indices) => batch.filter((_plan, index) => indices.includes(index)));
}

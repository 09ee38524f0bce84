import { currentExecution } from '../action/execution.js';
import type { AnyEntity } from '../model/entity.js';
import type { AttemptReads } from './attempt-reads.js';
import type { ModelSource } from './model-source.js';

/**
 * Reads a model for whoever asks, to be called by repositories: within an action its turn is waited for, and with
 * grouped commit the model may be one that is staged and not committed yet.
 *
 * Outside of actions it is a read like any other. A read within `inTransaction` must not be passed here.
 *
 * @param id as the source writes it in its answers
 */
export function readById<M extends AnyEntity>(source: ModelSource<M>, id: string): Promise<M | undefined> {
  const reads = currentReads();
  return reads === undefined ? source.readOne(id) : reads.read(source, id);
}

/** Reads several models as {@link readById} does, but for the turns: nobody waits for those of several models. */
export function readByIds<M extends AnyEntity>(
  source: ModelSource<M>,
  ids: readonly string[],
): Promise<ReadonlyMap<string, M>> {
  const reads = currentReads();
  return reads === undefined ? source.readSeveral(ids) : reads.readSeveral(source, ids);
}

/** What the caller's execution reads through, while its plan is open. */
function currentReads(): AttemptReads | undefined {
  const execution = currentExecution();
  return execution === undefined || execution.plan.sealed ? undefined : execution.reads;
}

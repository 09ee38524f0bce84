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

/** Reads several models, each an object of its own, as {@link readById} does, but for the turns: nobody waits for those of several models. */
export async function readByIds<M extends AnyEntity>(
  source: ModelSource<M>,
  ids: readonly string[],
): Promise<ReadonlyMap<string, M>> {
  const reads = currentReads();
  if (reads !== undefined) return reads.readSeveral(source, ids);
  return madeModels(await source.readSeveral(ids));
}

/** Makes a model of everything that a source has read. */
export function madeModels<M>(stored: ReadonlyMap<string, () => M>): ReadonlyMap<string, M> {
  return new Map([...stored].map(([id, toModel]) => [id, toModel()]));
}

/** What the caller's execution reads through, while its plan is open. */
function currentReads(): AttemptReads | undefined {
  const execution = currentExecution();
  return execution === undefined || execution.plan.sealed ? undefined : execution.reads;
}

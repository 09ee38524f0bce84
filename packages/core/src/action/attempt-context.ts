import { AsyncLocalStorage } from 'node:async_hooks';

import type { AnyEntity } from '../model/model.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ModelSource } from '../storage/repository.js';
import type { TransactionManager } from '../storage/transaction-manager.js';
import type { Plan } from './plan.js';

/** What runs within an action's `perform` finds by the async context: the attempt that it belongs to. */
export interface AttemptContext {
  readonly actionName: string;
  readonly plan: Plan;
  readonly reads: AttemptReads;
  /** The shards that the execution has accessed, for reads of any kind. */
  readonly shards: Set<ShardIdentifier>;
}

/** How one attempt reads models by their ids. */
export interface AttemptReads {
  /** Reads a model, or `undefined`, after waiting for the lock on it. */
  read<M extends AnyEntity>(source: ModelSource<M>, id: string): Promise<M | undefined>;
  /** Reads models, without waiting for locks on them; by their ids, missing ones are left out. */
  readSeveral<M extends AnyEntity>(
    source: ModelSource<M>,
    ids: readonly string[],
  ): Promise<ReadonlyMap<string, M>>;
  /** The timeline on which the attempt reads a shard: that of its first access, which this notes. */
  timelineOf(manager: Pick<TransactionManager, 'shard' | 'timeline'>): number;
}

const attempts = new AsyncLocalStorage<AttemptContext>();

/** Runs the work in the context of an attempt: until it settles, and in whatever it started. */
export function runInAttempt<T>(context: AttemptContext, work: () => Promise<T>): Promise<T> {
  // Awaited within, because what work gives may begin only then.
  return attempts.run(context, async () => await work());
}

/** The attempt in which the caller runs, if any; its plan may be sealed already. */
export function currentAttempt(): AttemptContext | undefined {
  return attempts.getStore();
}

import { AsyncLocalStorage } from 'node:async_hooks';

import type { AttemptReads } from '../reads/read-context.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { Plan } from './plan.js';

/** One attempt of an action: found from anywhere inside its perform by the async context. */
export interface Execution {
  readonly actionName: string;
  readonly plan: Plan;
  /** Through which it reads by id. */
  readonly reads: AttemptReads;
  /** The shards that it has accessed, for reads of any kind. */
  readonly shards: Set<ShardIdentifier>;
}

const executions = new AsyncLocalStorage<Execution>();

/** Runs the work as this execution: until it settles, and in whatever it started. */
export function runAs<T>(execution: Execution, work: () => Promise<T>): Promise<T> {
  // Awaited within, because what work gives may begin only then.
  return executions.run(execution, async () => await work());
}

/** The execution in which the caller runs, if any; its plan may be sealed already. */
export function currentExecution(): Execution | undefined {
  return executions.getStore();
}

import type { DeliverableEvent } from '@framework/core';
import type { MemoryCommit } from '../memory/index.js';
import type { RepositoryOf } from '../specification/world/world-setup.js';
import type { CallRecord } from './history.js';

/** What a run has left behind, for own invariants. */
export interface SimulationState<Given> {
  readonly given: Given;
  /** Finds a repository by its class, or by that of its models; reads what is stored now. */
  readonly repository: RepositoryOf;
  /** All that was committed and is still there, by databases, in the order of their commits. */
  readonly commits: readonly MemoryCommit[];
  readonly events: readonly DeliverableEvent[];
  /** All calls, with their outcomes. */
  readonly calls: readonly CallRecord[];
  /** Whether a failover has lost commits, so that acknowledged writes may be gone. */
  readonly hasLosses: boolean;
}

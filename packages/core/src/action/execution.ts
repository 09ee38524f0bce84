import type { KeyedRequest } from '../idempotency/keyed-request.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ActionRecord } from '../storage/change-set.js';
import type { StoredKey } from '../storage/idempotency-keys.js';
import type { RegisteredAction } from './action-registry.js';
import type { Principal } from './action.js';
import type { UnknownCommits } from './commit.js';
import type { ExecutionConfiguration } from './options.js';

/** One execution, over all its attempts. */
export interface Run<Params, Result> {
  readonly registered: RegisteredAction<Params, Result>;
  readonly principal: Principal;
  /** Seen by nobody but a copy of them by each attempt. */
  readonly params: Params;
  readonly record: ActionRecord;
  readonly configuration: ExecutionConfiguration;
  readonly request: KeyedRequest<Result> | undefined;
  /** Those that its attempts have accessed so far, for reads of any kind. */
  readonly shards: Set<ShardIdentifier>;
  /** Of the attempts so far. */
  readonly unknownCommits: UnknownCommits<Result>;
}

/** Whether every database is asked for the key before the action is performed. */
export function isSearched({ searchKeyOnAllDatabases = true }: ExecutionConfiguration): boolean {
  return searchKeyOnAllDatabases;
}

/** Gives the result of the request that was committed under the key. */
export function replay<Result>(
  request: KeyedRequest<Result>,
  stored: StoredKey,
  { onReplayed }: ExecutionConfiguration,
): Result {
  const result = request.replay(stored);
  onReplayed?.();
  return result;
}

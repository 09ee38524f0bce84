import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { AnyEntity } from '../model/model.js';
import type { KeyRecord } from './idempotency-keys.js';
import type { ModelMapper } from './repository.js';
import type { CommitOutcomeUnknownError } from './storage-errors.js';

/**
 * Everything that one action writes on one shard: committed together or not at all.
 *
 * The adapter writes the rows in a fixed order (table, id), so that two actions that update the same rows never deadlock. It
 * writes every event with the action's context.
 */
export interface ChangeSet {
  readonly shard: ShardIdentifier;
  readonly action: ActionRecord;
  /** New rows and guarded updates, each id once, in the order in which they were staged. */
  readonly changes: readonly Change[];
  /** In the order in which they were attached. If empty, the action is recorded by one row without an event type. */
  readonly events: readonly EventRecord[];
  /**
   * The `timeline` of the shard's transaction manager when the action first read there. On another timeline its updates are
   * stale, because the same version may have different contents there. Absent if nothing was read.
   */
  readonly timeline?: number | undefined;
  /** Stored in the same transaction. If the key already exists, nothing of the change set is written. */
  readonly key?: KeyRecord | undefined;
  /**
   * Earlier commits of the same action on this shard whose outcome was unknown. If the log contains any of them, nothing of the
   * change set is written: the answer that none of them had happened was wrong.
   */
  readonly unknownCommits?: readonly CommitOutcomeUnknownError[] | undefined;
}

/** What was requested and by whom; written with every event of the action. */
export interface ActionRecord {
  /** A UUID version 7, the same on every shard that the action writes. */
  readonly id: string;
  readonly name: string;
  /** The params as JSON. */
  readonly params: string;
  readonly namespace: string;
  readonly principal: string;
  /** Trace context and the caller's headers, as a JSON object of texts. */
  readonly headers: string;
  readonly startedDate: Date;
}

/** One row to add, or to update if it still has the expected version. */
export interface Change {
  readonly kind: 'add' | 'update';
  readonly repository: ModelMapper;
  /** The pending version; its version is the one to be written. */
  readonly model: AnyEntity;
  /** The version that the row must have; 0 for an addition, which is stale if a row with its id exists. */
  readonly expectedVersion: number;
  /** The row that the repository made of the model. */
  readonly row: unknown;
}

/** One event, ready for the log. */
export interface EventRecord {
  /** A UUID version 7, the same wherever the event is delivered. */
  readonly id: string;
  /** The event's position among those of its action, over all shards, from 0. */
  readonly ordinal: number;
  readonly modelId: string;
  readonly modelName: string;
  /** The version that the change produced; several events of one update share it. */
  readonly modelVersion: number;
  readonly type: string;
  /** The event's own fields as JSON. */
  readonly payload: string;
}

/** An update whose row was read on another timeline, if there is one: it is stale, whatever version it finds. */
export function updateOfOtherTimeline(
  { timeline, changes }: Pick<ChangeSet, 'timeline' | 'changes'>,
  present: number,
): Change | undefined {
  if (timeline === undefined || timeline === present) return undefined;
  return changes.find(({ kind }) => kind === 'update');
}

/**
 * For adapters: the slot of the log for the events of a model, the same in every process and permanently.
 *
 * @param slotCount the number of slots of the log
 * @see https://datatracker.ietf.org/doc/html/draft-eastlake-fnv FNV-1a, 32 bits, over UTF-16 code units
 */
export function slotOf(modelId: string, slotCount: number): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < modelId.length; index++) {
    hash = Math.imul(hash ^ modelId.charCodeAt(index), 0x01000193);
  }
  return ((hash ^ (hash >>> 16)) >>> 0) % slotCount;
}

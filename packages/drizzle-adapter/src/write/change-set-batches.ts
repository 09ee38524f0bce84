import {
  type Change,
  type ChangeSet,
  type EventRecord,
  ShardedId,
  type ShardIdentifier,
} from '@framework/core';
import type { ActionRow } from './events-clause.js';
import type { Row } from './row.js';

/** How many rows of models, and how many events, one statement writes at most; more go into further statements. */
const changesPerStatement = 32;
const eventsPerStatement = 64;

/** What one statement writes. */
export interface Batch {
  /** Updates first, then additions, each in the order of table and id. */
  readonly changes: readonly Change[];
  readonly events: readonly (EventRecord | ActionRow)[];
}

/**
 * Cuts a change set into what one statement writes, mostly one.
 *
 * Over all batches updated rows are locked in the fixed order (table, id), so two change sets that update the same rows never
 * deadlock each other.
 */
export function batchesOf(changeSet: ChangeSet): readonly Batch[] {
  const { changes } = changeSet;
  const rows = changes.length > 1 ? changes.toSorted(byTableAndId) : changes;
  const logged = loggedEvents(changeSet);
  const count = Math.max(
    Math.ceil(rows.length / changesPerStatement),
    Math.ceil(logged.length / eventsPerStatement),
  );
  return Array.from({ length: count }, (_unused, index) => ({
    changes: sliceOf(rows, index, changesPerStatement).toSorted(updatesFirst),
    events: sliceOf(logged, index, eventsPerStatement),
  }));
}

/** The rows of the log that a change set writes: its events, or the one that records its action. */
export function loggedEvents({ shard, events }: ChangeSet): Batch['events'] {
  return events.length > 0 ? events : [actionRow(shard)];
}

function sliceOf<T>(list: readonly T[], index: number, size: number): readonly T[] {
  return list.slice(index * size, (index + 1) * size);
}

function byTableAndId(one: Change, other: Change): number {
  const { table } = (one.row as Row).shape;
  const { table: otherTable } = (other.row as Row).shape;
  if (table !== otherTable) return table < otherTable ? -1 : 1;
  return one.model.id.value < other.model.id.value ? -1 : 1;
}

/** Others wait for additions only where theirs collide in a unique index; after the updates, a stale one spares them. */
function updatesFirst(one: Change, other: Change): number {
  return Number(one.kind === 'add') - Number(other.kind === 'add');
}

/** One action may record itself on several shards of a database: each row has an id of its own. */
function actionRow(shard: ShardIdentifier): ActionRow {
  const id = ShardedId.generate(Object, shard).value;
  return { id, ordinal: 0, modelId: null, modelName: null, modelVersion: null, type: null, payload: null };
}

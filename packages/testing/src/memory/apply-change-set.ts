import {
  type CommitOutcomeUnknownError,
  FrameworkError,
  InvariantViolationError,
  StaleRecordError,
} from '@framework/core';
import {
  type AnyEntity,
  type Change,
  type ChangeSet,
  type DeliverableEvent,
  type EventRecord,
  type GroupOutcome,
  type PersistOutcome,
  StorageFailureError,
  modelNameOf,
  randomUuid,
  slotOf,
  updateOfOtherTimeline,
} from '@framework/core/adapter';

import { isKeyTaken, storeKey } from './memory-idempotency-keys.js';
import { MemoryRow } from './memory-row.js';
import type { MemoryCommit, MemoryTables } from './memory-tables.js';

/**
 * Writes a change set completely, or throws and writes nothing. Everything is checked before anything is written, and nothing
 * else runs in between.
 *
 * @throws StaleRecordError `stale-record`
 * @throws StorageFailureError `storage-failure` for invalid JSON
 */
export function applyChangeSet(tables: MemoryTables, changes: ChangeSet): PersistOutcome {
  const stale = updateOfOtherTimeline(changes, tables.delivery.timeline);
  if (stale !== undefined) throw StaleRecordError.of(stale);
  if (isKeyTaken(tables, changes)) return 'key-taken';
  if (changes.unknownCommits?.some((unknown) => isCommitted(tables, unknown)) === true)
    return 'written-before';
  const rows = changes.changes.map((change) => checkedRow(tables, change));
  const createdDate = tables.clock.now();
  const events = changes.events.map((event) => deliverable(event, changes, createdDate, tables));

  storeKey(tables, changes);
  for (const { table, row } of rows) tables.rows(table).set(row.id, row);
  tables.delivery.commit(...events);
  const commit: MemoryCommit = {
    position: tables.nextPosition(),
    shard: changes.shard,
    action: changes.action,
    createdDate,
    changes: rows.map(({ kind, table, row }) => ({ kind, table, id: row.id, version: row.version, row })),
    events,
    recordId: randomUuid(),
  };
  tables.commits.push(commit);
  return 'written';
}

/** Whether the log contains the action of a commit whose answer was lost. */
export function isCommitted(
  { commits }: MemoryTables,
  { actionId, shard }: CommitOutcomeUnknownError,
): boolean {
  return commits.some((commit) => commit.action.id === actionId && commit.shard === shard);
}

interface CheckedRow {
  readonly kind: Change['kind'];
  readonly table: string;
  readonly row: MemoryRow;
}

function checkedRow(tables: MemoryTables, change: Change): CheckedRow {
  const { kind, model, repository, row, expectedVersion } = change;
  const table = modelNameOf(repository.model);
  if (!(row instanceof MemoryRow)) throw foreignRow(table, model);
  const stored = tables.rows(table).get(row.id);
  if (kind === 'add' ? stored !== undefined : stored?.version !== expectedVersion)
    throw StaleRecordError.of(change);
  return { kind, table, row: stored === undefined ? row : row.over(stored) };
}

function deliverable(
  event: EventRecord,
  { action, shard }: ChangeSet,
  createdDate: Date,
  { delivery }: MemoryTables,
): DeliverableEvent {
  const read = (json: string): unknown => parsed(json, shard);
  return {
    id: event.id,
    slot: slotOf(event.modelId, delivery.slotCount),
    namespace: action.namespace,
    actionId: action.id,
    actionName: action.name,
    actionParams: read(action.params),
    principal: action.principal,
    ordinal: event.ordinal,
    modelId: event.modelId,
    modelName: event.modelName,
    modelVersion: event.modelVersion,
    type: event.type,
    payload: read(event.payload),
    headers: read(action.headers) as Readonly<Record<string, string>>,
    startedDate: action.startedDate,
    createdDate,
  };
}

function parsed(json: string, shard: ChangeSet['shard']): unknown {
  try {
    return JSON.parse(json);
  } catch (error) {
    throw new StorageFailureError(shard, 'a row of the log is not valid JSON', { cause: error });
  }
}

function foreignRow(table: string, model: AnyEntity): InvariantViolationError {
  return new InvariantViolationError(
    `${table} ${model.id.value} comes from a repository that is not in memory: give the executor a MemoryRepository`,
  );
}

/**
 * Writes change sets one after the other, each completely or not at all. A change set that depends on one that was not written is
 * not written either.
 */
export function applyGroup(tables: MemoryTables, group: readonly ChangeSet[]): readonly GroupOutcome[] {
  const lost = new Set<string>();
  return group.map((changeSet) => {
    const base = changeSet.changes.find((change) => lost.has(rowKey(change)));
    const outcome = base === undefined ? applied(tables, changeSet) : StaleRecordError.of(base);
    if (outcome !== 'written') for (const change of changeSet.changes) lost.add(rowKey(change));
    return outcome;
  });
}

function applied(tables: MemoryTables, changeSet: ChangeSet): GroupOutcome {
  try {
    return applyChangeSet(tables, changeSet);
  } catch (error) {
    if (FrameworkError.is(error)) return error;
    throw error;
  }
}

function rowKey({ repository, model }: Change): string {
  return `${modelNameOf(repository.model)} ${model.id.value}`;
}

import {
  type Change,
  type ChangeSet,
  FrameworkException,
  type GroupOutcome,
  StaleRecordException,
  modelNameOf,
} from '@framework/core';
import { applyChangeSet } from './apply-change-set.js';
import type { MemoryTables } from './memory-tables.js';

/** Writes change sets in turn, each as a whole or not at all; what follows one that is not written is not written either. */
export function applyGroup(tables: MemoryTables, group: readonly ChangeSet[]): readonly GroupOutcome[] {
  const lost = new Set<string>();
  return group.map((changeSet) => {
    const base = changeSet.changes.find((change) => lost.has(rowKey(change)));
    const outcome = base === undefined ? applied(tables, changeSet) : StaleRecordException.of(base);
    if (outcome !== 'written') for (const change of changeSet.changes) lost.add(rowKey(change));
    return outcome;
  });
}

function applied(tables: MemoryTables, changeSet: ChangeSet): GroupOutcome {
  try {
    return applyChangeSet(tables, changeSet);
  } catch (error) {
    if (FrameworkException.is(error)) return error;
    throw error;
  }
}

function rowKey({ repository, model }: Change): string {
  return `${modelNameOf(repository.model)} ${model.id.value}`;
}

import { ShardIdentifier } from '@framework/core';
import type { ChangeSet, EventRecord } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { batchesOf } from './change-set-writer.js';

const shard = ShardIdentifier.of(3, 4);

describe('batchesOf', () => {
  test('writes a small change set in one statement, updates first', () => {
    const [batch, ...others] = batchesOf(changeSet(['add b1', 'update b2', 'add a9', 'update a1'], 2));
    expect(others).toEqual([]);
    expect(batch?.changes.map(described)).toEqual(['update a1', 'update b2', 'add a9', 'add b1']);
    expect(batch?.events).toHaveLength(2);
  });

  test('orders the rows of all statements by table and id', () => {
    const staged = Array.from({ length: 100 }, (_unused, index) => `update t${(index * 37) % 100}`);
    const batches = batchesOf(changeSet(staged, 1));
    expect(batches.length).toBeGreaterThan(1);
    const written = batches.flatMap(({ changes }) => changes.map(described));
    expect(written).toEqual(staged.toSorted());
  });

  test('writes every change and every event once, however many there are', () => {
    for (const [changeCount, eventCount] of [
      [200, 300],
      [1, 300],
      [200, 1],
      [33, 65],
    ] as const) {
      const staged = Array.from({ length: changeCount }, (_unused, index) => `update t${index}`);
      const batches = batchesOf(changeSet(staged, eventCount));
      expect(batches.flatMap(({ changes }) => changes)).toHaveLength(changeCount);
      const ordinals = batches.flatMap(({ events }) => events.map(({ ordinal }) => ordinal));
      expect(ordinals).toEqual(Array.from({ length: eventCount }, (_unused, index) => index));
    }
  });

  test('records an action without events by one row with an id of its own', () => {
    const [one] = batchesOf(changeSet(['add a1'], 0));
    const [other] = batchesOf(changeSet(['add a1'], 0));
    expect(one?.events).toMatchObject([{ ordinal: 0, type: null, modelId: null, payload: null }]);
    expect(one?.events[0]?.id).not.toBe(other?.events[0]?.id);
  });
});

/** Changes written as kind, one letter for the table, and the id. */
function changeSet(changes: readonly string[], eventCount: number): ChangeSet {
  return {
    shard,
    action: { id: 'action' },
    changes: changes.map((change) => {
      const [kind, place = ''] = change.split(' ');
      return { kind, row: { shape: { table: place[0] } }, model: { id: { value: place.slice(1) } } };
    }),
    events: Array.from({ length: eventCount }, (_unused, ordinal): Partial<EventRecord> => ({ ordinal })),
  } as unknown as ChangeSet;
}

function described({ kind, row, model }: ChangeSet['changes'][number]): string {
  const { table } = (row as { readonly shape: { readonly table: string } }).shape;
  return `${kind} ${table}${model.id.value}`;
}

test.each([
  [31, 63, 1],
  [32, 64, 1],
  [33, 64, 2],
  [32, 65, 2],
  [64, 128, 2],
  [65, 128, 3],
  [1, 129, 3],
])('%d changes and %d events are written in %d statements', (changeCount, eventCount, expected) => {
  const staged = Array.from({ length: changeCount }, (_unused, index) => `update t${index}`);
  expect(batchesOf(changeSet(staged, eventCount))).toHaveLength(expected);
});

import { describe, expect, it } from 'vitest';
import type { RowShape } from './row.js';
import { type WriteShape, shapeKey, writeStatement } from './write-statement.js';

const shape: RowShape = {
  key: 't0',
  table: '"accounts"',
  columns: ['"id"', '"version"', '"note"'],
  idIndex: 0,
  versionColumn: '"version"',
};
const update = { kind: 'update', shape } as const;
const add = { kind: 'add', shape } as const;

describe('writeStatement', () => {
  it('guards every update by id and expected version', () => {
    const statement = writeStatement({ changes: [update, update], eventCount: 0, alone: true });
    expect(statement).toContain('where "id" = $2 and "version" = $1 returning 1');
    expect(statement).toContain('where "id" = $6 and "version" = $5 and (select count(*) from u1) = 1');
  });

  it('lets an update, the additions and the events wait for the update before', () => {
    const statement = writeStatement({ changes: [update, update, add], eventCount: 2, alone: true });
    expect(statement).toContain('select $9, $10, $11 where (select count(*) from u2) = 1');
    expect(statement).toMatch(/as event where \(select count\(\*\) from u2\) = 1\)/);
  });

  it('raises for a stale row after the first, and for the first one among other statements', () => {
    const changes = [update, update];
    const alone = writeStatement({ changes, eventCount: 1, alone: true });
    expect(alone).toContain('when (select count(*) from u1) = 0 then 1 ');
    expect(alone).toContain('when (select count(*) from u2) = 0 then eventlog.raise_stale(2)');
    const among = writeStatement({ changes, eventCount: 1, alone: false });
    expect(among).toContain('when (select count(*) from u1) = 0 then eventlog.raise_stale(1)');
  });

  it('uses each parameter once, without a gap', () => {
    const statement = writeStatement({ changes: [update, add, add], eventCount: 3, alone: true });
    const used = [...statement.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number));
    expect(used.toSorted((one, other) => one - other)).toEqual(
      Array.from({ length: used.length }, (_unused, index) => index + 1),
    );
  });
});

describe('shapeKey', () => {
  it('differs where the statement differs', () => {
    const other = { ...shape, key: 't1' };
    const shapes: readonly WriteShape[] = [
      { changes: [update], eventCount: 1, alone: true },
      { changes: [update], eventCount: 1, alone: false },
      { changes: [update], eventCount: 2, alone: true },
      { changes: [add], eventCount: 1, alone: true },
      { changes: [update, update], eventCount: 1, alone: true },
      { changes: [{ ...update, shape: other }], eventCount: 1, alone: true },
      { changes: [], eventCount: 1, alone: true },
    ];
    expect(new Set(shapes.map(shapeKey)).size).toBe(shapes.length);
  });
});

import { describe, expect, test } from 'vitest';

import type { RowShape } from './row-encoder.js';
import { type WriteShape, shapeKey, writeStatement } from './write-statement.js';

const shape: RowShape = {
  key: 't0',
  table: '"accounts"',
  fields: [],
  columns: ['"id"', '"version"', '"note"'],
  idIndex: 0,
  versionColumn: '"version"',
  casts: [],
  isWhole: false,
  declared: [],
};
const update = { kind: 'update', shape } as const;
const add = { kind: 'add', shape } as const;

/** The expression that raises an error when an addition was left out. */
const raisingFor = (number: number): string =>
  `case when (select count(*) from a${number}) = 0 then eventlog.raise_stale(${number}) else 0 end = 0`;

describe('writeStatement', () => {
  test('guards every update by id and expected version', () => {
    const statement = writeStatement({
      changes: [update, update],
      eventCount: 0,
      alone: true,
      keyed: false,
      repeated: false,
      brief: false,
    });
    expect(statement).toContain('where "id" = $2 and "version" = $1 returning 1');
    expect(statement).toContain('where "id" = $6 and "version" = $5 and (select count(*) from u1) = 1');
  });

  test('makes an update, the additions and the events wait for the update before them', () => {
    const statement = writeStatement({
      changes: [update, update, add],
      eventCount: 2,
      alone: true,
      keyed: false,
      repeated: false,
      brief: false,
    });
    expect(statement).toContain('select $9, $10, $11 where (select count(*) from u2) = 1');
    expect(statement).toContain(') as event, u2)');
  });

  test.each([
    { changes: [update, add], eventCount: 1, end: `, false from u1 where ${raisingFor(2)}` },
    { changes: [update], eventCount: 2, end: ') as event, u1' },
    { changes: [add], eventCount: 1, end: `, false where ${raisingFor(1)}` },
    { changes: [], eventCount: 1, end: ', false' },
  ])(
    'inserts the events in its main part when at most one update comes before them: %o',
    ({ changes, eventCount, end }) => {
      const statement = writeStatement({
        changes,
        eventCount,
        alone: true,
        keyed: false,
        repeated: false,
        brief: false,
      });
      expect(statement).toMatch(/^(with .*\) )?insert into eventlog\.events /);
      expect(statement).not.toContain('as stale');
      expect(statement.endsWith(end)).toBe(true);
      expect(
        writeStatement({ changes, eventCount, alone: false, keyed: false, repeated: false, brief: false }),
      ).toContain('as stale');
    },
  );

  test('raises an error for a stale row after the first, and among other statements for the first one, too', () => {
    const changes = [update, update];
    const alone = writeStatement({
      changes,
      eventCount: 1,
      alone: true,
      keyed: false,
      repeated: false,
      brief: false,
    });
    expect(alone).toContain('when (select count(*) from u1) = 0 then 1 ');
    expect(alone).toContain('when (select count(*) from u2) = 0 then eventlog.raise_stale(2)');
    const among = writeStatement({
      changes,
      eventCount: 1,
      alone: false,
      keyed: false,
      repeated: false,
      brief: false,
    });
    expect(among).toContain('when (select count(*) from u1) = 0 then eventlog.raise_stale(1)');
  });

  test('limits all waits for locks in the first clause that may wait', () => {
    const of = { eventCount: 1, alone: true, brief: true };
    const limit = `set_config('lock_timeout', '100', true) is not null`;
    const clausesOf = (kind: Pick<WriteShape, 'changes' | 'keyed' | 'repeated'>): readonly string[] =>
      writeStatement({ ...of, ...kind })
        .split(/(?=\b[a-z]\d? as \()/)
        .filter((clause) => clause.includes(limit))
        .map((clause) => clause.slice(0, 2));
    expect(clausesOf({ changes: [update, update, add], keyed: false, repeated: false })).toEqual(['u1']);
    expect(clausesOf({ changes: [add, add], keyed: false, repeated: false })).toEqual(['a1', 'a2']);
    expect(clausesOf({ changes: [update], keyed: true, repeated: false })).toEqual(['k ']);
    expect(clausesOf({ changes: [update], keyed: false, repeated: true })).toEqual(['b ']);
  });

  test('raises an error among other statements when their transaction is not open', () => {
    const of = { changes: [add], eventCount: 1, keyed: false, repeated: false, brief: false };
    const raising = "case when current_setting('framework.in_transaction', true) is distinct from 'on' then";
    expect(writeStatement({ ...of, alone: false })).toContain(raising);
    expect(writeStatement({ ...of, alone: true })).not.toContain('framework.in_transaction');
  });

  test('makes everything wait for an idempotency key, and then raises an error for every stale row', () => {
    const changes = [update, add];
    const alone = writeStatement({
      changes,
      eventCount: 1,
      alone: true,
      keyed: true,
      repeated: false,
      brief: false,
    });
    expect(alone).toContain('"version" = $10 and (select count(*) from k) = 1');
    expect(alone).toContain('case when (select count(*) from k) = 0 then -1 ');
    expect(alone).toContain('when (select count(*) from u1) = 0 then eventlog.raise_stale(1)');
    const among = writeStatement({
      changes: [add],
      eventCount: 1,
      alone: false,
      keyed: true,
      repeated: false,
      brief: false,
    });
    expect(among).toContain('when (select count(*) from k) = 0 then eventlog.raise_key_taken()');
    expect(among).toContain('select $10, $11, $12 where (select count(*) from k) = 1');
    expect(among).toContain(', false from k)');
  });

  test.each([false, true])('numbers its parameters without a gap and uses each once (keyed: %s)', (keyed) => {
    const statement = writeStatement({
      changes: [update, add, add],
      eventCount: 3,
      alone: true,
      keyed,
      repeated: false,
      brief: false,
    });
    const used = [...statement.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number));
    expect(used.toSorted((one, other) => one - other)).toEqual(
      Array.from({ length: used.length }, (_unused, index) => index + 1),
    );
  });
});

describe('shapeKey', () => {
  test('differs whenever the statement differs', () => {
    const other = { ...shape, key: 't1' };
    const shapes: readonly WriteShape[] = [
      { changes: [update], eventCount: 1, alone: true, keyed: false, repeated: false, brief: false },
      { changes: [update], eventCount: 1, alone: false, keyed: false, repeated: false, brief: false },
      { changes: [update], eventCount: 2, alone: true, keyed: false, repeated: false, brief: false },
      { changes: [add], eventCount: 1, alone: true, keyed: false, repeated: false, brief: false },
      { changes: [update, update], eventCount: 1, alone: true, keyed: false, repeated: false, brief: false },
      {
        changes: [{ ...update, shape: other }],
        eventCount: 1,
        alone: true,
        keyed: false,
        repeated: false,
        brief: false,
      },
      { changes: [], eventCount: 1, alone: true, keyed: false, repeated: false, brief: false },
      { changes: [], eventCount: 1, alone: true, keyed: true, repeated: false, brief: false },
    ];
    expect(new Set(shapes.map(shapeKey)).size).toBe(shapes.length);
  });
});

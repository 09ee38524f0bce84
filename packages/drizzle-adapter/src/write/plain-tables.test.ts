import { beforeEach, describe, expect, test } from 'vitest';

import { leftBehind, unhandledIn } from '../../../core/test/left-behind.js';
import { type LookUp, PlainTables } from './plain-tables.js';
import type { RowShape } from './row-encoder.js';

const shape: RowShape = {
  key: 'wallets',
  table: '"wallets"',
  fields: [],
  columns: ['"id"'],
  idIndex: 0,
  versionColumn: '"version"',
  casts: ['uuid'],
  isWhole: true,
  declared: [],
};

let nowMs: number;
let tables: PlainTables;
let asked: PromiseWithResolvers<boolean>[];

beforeEach(() => {
  nowMs = 0;
  tables = new PlainTables(() => nowMs);
  asked = [];
});

/** A database that answers each query when the test lets it. */
const lookUp: LookUp = async () => {
  const question = Promise.withResolvers<boolean>();
  asked.push(question);
  const rows: [boolean, boolean][] = [[true, await question.promise]];
  return { rows, command: 'SELECT', rowCount: rows.length, oid: 0, fields: [] };
};

const isKnownPlain = (): boolean => tables.isKnownPlain(shape, lookUp);

/** Answers the last query, and waits until the answer has taken effect. */
async function answer(isPlain: boolean): Promise<void> {
  asked.at(-1)?.resolve(isPlain);
  await new Promise(setImmediate);
}

describe('the check for a plain table', () => {
  test('runs in the background, one query at a time', async () => {
    expect([isKnownPlain(), isKnownPlain(), asked.length]).toEqual([false, false, 1]);
    await answer(true);
    expect([isKnownPlain(), asked.length]).toEqual([true, 1]);
  });

  test('is repeated before its answer expires, and trusted for ten seconds', async () => {
    isKnownPlain();
    await answer(true);
    nowMs = 5_000;
    expect([isKnownPlain(), asked.length]).toEqual([true, 1]);
    nowMs = 5_001;
    expect([isKnownPlain(), asked.length]).toEqual([true, 2]);
    nowMs = 10_000;
    expect([isKnownPlain(), asked.length]).toEqual([false, 2]);
    await answer(true);
    // The answer is valid from the time of the query.
    nowMs = 15_000;
    expect(isKnownPlain()).toBe(true);
    nowMs = 15_001;
    expect(isKnownPlain()).toBe(false);
  });

  test('is repeated after an error', async () => {
    isKnownPlain();
    asked[0]?.reject(new Error('away'));
    await new Promise(setImmediate);
    expect([isKnownPlain(), asked.length]).toEqual([false, 2]);
  });

  test('is not repeated before a negative answer expires, nor made for values that the database computes', async () => {
    isKnownPlain();
    await answer(false);
    nowMs = 6_000;
    expect([isKnownPlain(), asked.length]).toEqual([false, 1]);
    expect(tables.isKnownPlain({ ...shape, isWhole: false }, lookUp)).toBe(false);
    expect(asked.length).toBe(1);
  });
});

test('a table has the declared types until ten seconds after the database has said so', async () => {
  expect(tables.isTyped(shape)).toBeUndefined();
  const learnt = tables.learn([shape], lookUp);
  await answer(false);
  await learnt;
  nowMs = 9_999;
  expect([tables.isTyped(shape), tables.isPlain(shape)]).toEqual([true, false]);
  nowMs = 10_000;
  expect(tables.isTyped(shape)).toBeUndefined();
});

test('checks for a plain table leave nothing behind, even those that fail, and are repeated then', async () => {
  const shapes = Array.from({ length: 10 }, (_item, index) => ({ ...shape, key: `wallets ${index}` }));
  let failCount = 0;
  const unhandled = await unhandledIn(async () => {
    const left = await leftBehind(async () => {
      nowMs += 20_000;
      for (const each of shapes)
        tables.isKnownPlain(each, () => Promise.reject(new Error(`down ${failCount++}`)));
      await new Promise(setImmediate);
    });
    expect(left).toEqual([]);
  });
  expect([unhandled, failCount]).toEqual([[], 40]);
});

import { describe, expect, test } from 'vitest';

import { RefusedShapes } from './group-writer.js';
import type { RowShape } from './row-encoder.js';

const shapes = ['a', 'b'].map((key): RowShape => ({
  key,
  table: key,
  fields: [],
  columns: ['id'],
  idIndex: 0,
  versionColumn: 'version',
  casts: ['uuid'],
  staged: undefined,
  declared: [],
}));

describe('a row shape that the database has refused', () => {
  test('stays refused for a time that doubles with each refusal, up to an hour', () => {
    let nowMs = 0;
    const refused = new RefusedShapes(() => nowMs);
    const [shape, other] = shapes as [RowShape, RowShape];
    for (const durationMs of [1_000, 2_000, 4_000]) {
      refused.refuse([shape]);
      nowMs += durationMs - 1;
      expect(refused.has(shape)).toBe(true);
      nowMs += 1;
      expect(refused.has(shape)).toBe(false);
    }
    for (let count = 0; count < 30; count++) refused.refuse([shape]);
    nowMs += 60 * 60 * 1_000;
    expect(refused.has(shape)).toBe(false);
    expect(refused.has(other)).toBe(false);
  });
});

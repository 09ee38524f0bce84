import { DatabaseNotReadyError, type NotReadyKind } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { TablesInUseError } from './migration/migrate-database.js';
import { OpeningRetries } from './pg-database.js';

describe('the next try to open a database', () => {
  test('comes after half a second while the database may come up at any moment', () => {
    const retries = new OpeningRetries();
    const delays = [1, 2, 3].map(() => retries.delayMsAfter(undefined, reason('not-serving'), 60_000));
    expect(delays).toEqual([500, 500, 500]);
  });

  test('comes after intervals that grow up to 5 s while an operator has to act', () => {
    const retries = new OpeningRetries();
    const delays = [1, 2, 3, 4, 5].map(() => retries.delayMsAfter(undefined, reason('refused'), 60_000));
    expect(delays).toEqual([1_000, 2_000, 4_000, 5_000, 5_000]);
  });

  test.each<[what: string, kind: NotReadyKind, error: unknown]>([
    ['was refused', 'migration-failed', new Error('no')],
    ['found a table in use', 'not-serving', new TablesInUseError(new Error('no'))],
  ])(
    'comes after ten times the duration of a migration that %s, at most ten minutes',
    (_what, kind, error) => {
      const retries = new OpeningRetries();
      expect(retries.delayMsAfter(error, reason(kind), 20_000)).toBe(200_000);
      expect(retries.delayMsAfter(error, reason(kind), 300_000)).toBe(600_000);
      expect(retries.delayMsAfter(error, reason(kind), 1)).toBeGreaterThanOrEqual(500);
    },
  );
});

function reason(kind: NotReadyKind): DatabaseNotReadyError {
  return new DatabaseNotReadyError(kind, { what: 'something', remedy: 'nothing', cause: undefined });
}

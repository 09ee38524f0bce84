import { type Snapshot, formatPlace, parsePlace } from '@framework/drizzle-adapter/log';
import { describe, expect, test } from 'vitest';

import { isVisible, isVisibleUpTo, withTransactions } from './snapshot.js';

const snapshot = snapshotOf('10:20:10,15');

describe('a snapshot', () => {
  test.each([
    [9n, true],
    [10n, false],
    [11n, true],
    [15n, false],
    [19n, true],
    [20n, false],
    [21n, false],
  ])('shows transaction %d: %s', (xid, expected) => {
    expect(isVisible(snapshot, xid)).toBe(expected);
  });

  test.each([
    [9n, true],
    [10n, true],
    [11n, false],
  ])('shows everything below transaction %d: %s', (xid, expected) => {
    expect(isVisibleUpTo(snapshot, xid)).toBe(expected);
  });

  test('without transactions in progress shows everything below its end', () => {
    const calm = snapshotOf('20:20:');
    expect([20n, 21n].map((xid) => isVisibleUpTo(calm, xid))).toEqual([true, false]);
  });
});

describe('a snapshot with further transactions', () => {
  test.each([
    [[10n], 5, '15:20:15'],
    [[20n], 5, '10:21:10,15'],
    [[22n], 5, '10:23:10,15,20,21'],
    [[22n, 20n], 5, '10:23:10,15,21'],
    [[], 2, '10:20:10,15'],
    [[23n], 5, '10:24:10,15,20,21,22'],
    [[24n], 5, undefined],
    [[22n], 3, undefined],
  ] as const)('%s, and at most %d in progress, is %s', (xids, inProgressMax, expected) => {
    const made = withTransactions(snapshot, xids, inProgressMax);
    expect(made && textOf(made)).toBe(expected);
  });

  test('is refused at once for a transaction that is very far away', () => {
    expect(withTransactions(snapshot, [2n ** 60n], 256)).toBeUndefined();
  });
});

function snapshotOf(text: string): Snapshot {
  return parsePlace(`1 ${text} run`).snapshot;
}

function textOf(made: Snapshot): string {
  return formatPlace({ epoch: 1, snapshot: made, history: 'run' }).split(' ')[1] ?? '';
}

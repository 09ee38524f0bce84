import { describe, expect, test } from 'vitest';

import { cutSnapshot, formatPlace, formatSnapshot, parsePlace, parseSnapshot } from './log-place.js';

const snapshot = parseSnapshot('10:20:10,15');

describe('a snapshot', () => {
  test.each([
    '1:1:',
    '10:20:10,15',
    '10:20:10',
    '18446744073709551614:18446744073709551615:18446744073709551614',
  ])('is written as it was read: %s', (text) => {
    expect(formatSnapshot(parseSnapshot(text))).toBe(text);
  });

  test.each(['', '1:2', '1:2:3:4', 'a:2:', '1:-2:', '1:2:3;4', ' 1:2:', '1:2:\n'])('cannot be %j', (text) => {
    expect(() => parseSnapshot(text)).toThrow(expect.objectContaining({ code: 'invalid-cursor' }));
  });
});

describe('a snapshot after a batch that was cut short', () => {
  const current = parseSnapshot('10:40:10,25,30');

  test.each([
    [19n, '15:20:15'],
    [20n, '10:20:10'],
    [21n, '10:21:10'],
    [25n, '10:25:10'],
    [26n, '10:26:10,25'],
    [31n, '10:31:10,25,30'],
  ])('ends at transaction %d, with what is still in progress below it', (cut, expected) => {
    const cursor = cut === 19n ? parseSnapshot('12:20:12,15') : snapshot;
    const now = cut === 19n ? parseSnapshot('15:40:15') : current;
    expect(formatSnapshot(cutSnapshot(cursor, now, cut))).toBe(expected);
  });

  test('keeps what was in progress at the cursor from the cut on', () => {
    const cursor = parseSnapshot('10:20:10,15,18');
    expect(formatSnapshot(cutSnapshot(cursor, parseSnapshot('40:40:'), 15n))).toBe('15:20:15,18');
    expect(formatSnapshot(cutSnapshot(cursor, parseSnapshot('40:40:'), 16n))).toBe('18:20:18');
  });
});

describe('a place in the log', () => {
  test.each(['1 10:20:10,15 run', '0 1:1: 7/1', '3 20:20: run 18 5 20:30:20'])(
    'is written as it was read: %s',
    (text) => {
      expect(formatPlace(parsePlace(text))).toBe(text);
    },
  );

  test.each([
    '',
    '1 1:1:',
    '1 1:1: run 5',
    '1 1:1: run 5 6',
    '-1 1:1: run',
    '1 x run',
    '1 1:1: run 5 6 x',
    '1  1:1: run',
  ])('cannot be %j', (text) => {
    expect(() => parsePlace(text)).toThrow(expect.objectContaining({ code: 'invalid-cursor' }));
  });
});

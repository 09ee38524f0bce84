import { describe, expect, test } from 'vitest';

import { defaultDeliverySettings } from '../src/index.js';
import { retryAfterMs } from '../src/handler/event-handler.js';

const retry = { attemptsMax: 10, backoffBaseMs: 500, backoffMaxMs: 300_000 };

describe('the longest wait before the next attempt', () => {
  test.each([
    [1, 500],
    [2, 750],
    [3, 1_125],
    [4, 1_687.5],
    [17, 300_000],
    [1_000_000, 300_000],
  ])('after %d attempts is %d ms', (attempts, waitMs) => {
    expect(retryAfterMs(retry, attempts, 1)).toBe(waitMs);
  });

  test.each([
    [1, 500],
    [3, 1_125],
    [7, 5_000],
    [1_000_000, 5_000],
  ])('after %d calls that an outage ended is %d ms', (calls, waitMs) => {
    expect(retryAfterMs(retry, calls, 1, 5_000)).toBe(waitMs);
  });

  test('after an outage is never longer than after an error', () => {
    expect(retryAfterMs({ ...retry, backoffMaxMs: 600 }, 5, 1, 5_000)).toBe(600);
  });
});

test('the wait is a random time between half of the longest one and all of it', () => {
  expect([0, 0.5, 1].map((random) => retryAfterMs(retry, 2, random))).toEqual([375, 562.5, 750]);
  expect([0, 0.5, 1].map((random) => retryAfterMs(retry, 9, random, 5_000))).toEqual([2_500, 3_750, 5_000]);
});

test('by default, an event that always fails is tried for at least a day before it is a dead letter', () => {
  const { retry: defaults } = defaultDeliverySettings;
  const waits = Array.from({ length: defaults.attemptsMax - 1 }, (_unused, index) =>
    retryAfterMs(defaults, index + 1, 0),
  );
  expect(waits.reduce((sum, waitMs) => sum + waitMs)).toBeGreaterThanOrEqual(24 * 3_600_000);
  expect(defaults.backoffMaxMs).toBe(3_600_000);
});

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { RateLimits, TooManyRequestsError } from './rate-limits.js';

const perAddress = { requests: 2, seconds: 10 };

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test('a client that has sent its requests is refused until its window ends', async () => {
  const rates = new RateLimits({ perAddress, perPrincipal: false });
  expect(await rates.refusal('address', 'one')).toBeUndefined();
  vi.advanceTimersByTime(4_500);
  expect(await rates.refusal('address', 'one')).toBeUndefined();
  expect(await rates.refusal('address', 'one')).toMatchObject({
    code: 'too-many-requests',
    retryAfterSeconds: 6,
    headers: { 'ratelimit-policy': '"address";q=2;w=10', ratelimit: '"address";r=0;t=6' },
  });
  vi.advanceTimersByTime(5_501);
  expect(await rates.refusal('address', 'one')).toBeUndefined();
});

test('clients are counted apart, also an address and a principal of the same name', async () => {
  const rates = new RateLimits({ perAddress, perPrincipal: { requests: 1, seconds: 10 } });
  for (const _request of [1, 2]) await rates.refusal('address', 'one');
  expect(await rates.refusal('address', 'other')).toBeUndefined();
  expect(await rates.refusal('principal', 'one')).toBeUndefined();
  expect(await rates.refusal('principal', 'one')).toMatchObject({ subject: 'principal' });
});

test('clients without a limit are never refused', async () => {
  const rates = new RateLimits({ perAddress: false, perPrincipal: false });
  for (let request = 0; request < 10_000; request++)
    expect(await rates.refusal('address', 'one')).toBeUndefined();
});

test.each([
  [0, 1],
  [1, 1],
  [999, 1],
  [1_000, 1],
  [1_001, 2],
  [59_999, 60],
  [60_000, 60],
  [60_001, 61],
])('a client that may go on after %d ms is told to wait for %d s', (retryAfterMs, seconds) => {
  const { retryAfterSeconds, headers } = new TooManyRequestsError('address', perAddress, retryAfterMs);
  expect([retryAfterSeconds, headers['ratelimit']]).toEqual([seconds, `"address";r=0;t=${seconds}`]);
});

test('long names that differ only at their ends are counted apart', async () => {
  const rates = new RateLimits({ perAddress: false, perPrincipal: { requests: 1, seconds: 10 } });
  const long = '€'.repeat(254);
  expect(await rates.refusal('principal', `${long}1`)).toBeUndefined();
  expect(await rates.refusal('principal', `${long}2`)).toBeUndefined();
  expect(await rates.refusal('principal', `${long}1`)).toMatchObject({ code: 'too-many-requests' });
});

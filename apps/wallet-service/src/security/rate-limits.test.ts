import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { RateLimits } from './rate-limits.js';

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

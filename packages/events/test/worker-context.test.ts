import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { within } from '../src/worker-context.js';

describe('a limited wait for work', () => {
  test.each<[end: string, end: (work: PromiseWithResolvers<void>, clock: VirtualClock) => unknown]>([
    ['succeeds', (work) => work.resolve()],
    ['fails', (work) => work.reject(new Error('refused'))],
    ['takes too long', (_work, clock) => clock.advance(1_000)],
  ])('leaves no timer behind when the work %s, however often', async (_end, end) => {
    const clock = new VirtualClock();
    for (let round = 0; round < 5; round++) {
      const work = Promise.withResolvers<void>();
      const waited = Promise.allSettled([within(clock, 1_000, work.promise)]);
      expect(clock.sleeperCount).toBe(1);
      end(work, clock);
      await waited;
      expect(clock.sleeperCount).toBe(0);
    }
  });

  test('fails with the error of the work', async () => {
    const failed = within(new VirtualClock(), 1_000, Promise.reject(new Error('refused')));
    await expect(failed).rejects.toThrow('refused');
  });
});

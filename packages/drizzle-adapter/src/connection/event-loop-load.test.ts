import { describe, expect, test, vi } from 'vitest';

import { EventLoopLoad } from './shared-connections.js';

describe('the load of the event loop', () => {
  test('is measured over the last tenth of a second', async () => {
    const load = new EventLoopLoad();
    load.isBusy(performance.now());
    const endMs = performance.now() + 150;
    let nowMs = performance.now();
    while (nowMs < endMs) nowMs = performance.now();
    expect(load.isBusy(nowMs)).toBe(true);
    expect(load.isBusy(nowMs + 50)).toBe(true);
    await vi.waitUntil(() => !load.isBusy(performance.now()), { timeout: 30_000, interval: 20 });
  });
});

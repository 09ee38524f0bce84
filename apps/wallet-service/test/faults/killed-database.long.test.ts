import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { FaultHarness } from './fault-harness.js';

const timeout = 240_000;
const patience = { timeout: 60_000, interval: 50 };

let harness: FaultHarness;

beforeEach(async () => {
  harness = await FaultHarness.start();
});
afterEach(() => harness.end());

test('a database that is killed under load and restarted recovers by itself', { timeout }, async () => {
  const traffic = await harness.traffic();
  for (let kill = 1; kill <= 2; kill++) {
    await vi.waitFor(() => expect(traffic.transfers.size).toBeGreaterThan(10 * kill), patience);
    await harness.killServer();
    await vi.waitFor(async () => expect(await harness.readiness()).toMatchObject({ status: 503 }), patience);
    await vi.waitFor(() => {
      const failures = harness.log.filter((line) => line.includes('delivery continues after an error'));
      // Through the proxy, a dead server looks like a connection that ends, with a reset or cleanly.
      expect(failures.join('\n')).toMatch(/ECONN|connection/i);
    }, patience);
    const { status } = await harness.client.post('/wallets', {});
    expect(status).toBe(400);
    await harness.client.openWallet({ country: 'DE', currency: 'USD' });
    await harness.restartServer();
    await harness.expectWell();
  }
  // Each warning says which shard it is about, and none fills the log with a stack trace.
  const told = harness.log.filter((line) => /"msg":"(delivery continues|requests are refused)/.test(line));
  expect(told.filter((line) => !line.includes('shard (1, 0)') || line.includes('"stack"'))).toEqual([]);
  await harness.expectSettled(traffic);
});

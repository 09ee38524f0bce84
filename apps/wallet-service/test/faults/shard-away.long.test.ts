import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { problem } from '../wallet-client.js';
import { FaultHarness } from './fault-harness.js';

const timeout = 240_000;
const patience = { timeout: 60_000, interval: 50 };

let harness: FaultHarness;

beforeEach(async () => {
  // The slots of a process that was killed during an outage are free one lease after it.
  const delivery = { 'lease-ms': 3_000 };
  harness = await FaultHarness.start({ mexico: { 'acquisition-timeout-ms': 1_000 }, delivery });
});
afterEach(() => harness.end());

test.each(['refuses', 'is silent'] as const)(
  'a shard that %s while processes are killed strands no transfer and is reported',
  { timeout },
  async (fault) => {
    const traffic = await harness.traffic();
    await vi.waitFor(() => expect(traffic.transfers.size).toBeGreaterThan(20), patience);
    if (fault === 'refuses') await harness.proxy.refuse();
    else harness.proxy.silence();
    const [before, during] = [traffic.transfers.size, harness.log.length];
    await vi.waitFor(() => expect(traffic.transfers.size).toBeGreaterThan(before + 10), patience);

    for (let kill = 0; kill < 2; kill++) {
      await harness.killService();
      await harness.startService();
      const { body } = await harness.client.get('/health/ready');
      expect(body).toMatchObject({
        status: 'unavailable',
        shards: [expect.anything(), { name: 'mexico-1', status: 'unavailable' }],
      });
      const dead = await harness.client.post('/wallets', {
        country: 'MX',
        ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
        currency: 'USD',
      });
      expect(dead).toMatchObject(problem(503, 'shard-unavailable'));
      const sent = traffic.transfers.size;
      await vi.waitFor(() => expect(traffic.transfers.size).toBeGreaterThan(sent + 10), patience);
    }
    // Retried without counting attempts, and without a line for each of them.
    await vi.waitFor(() => {
      const retried = harness.log
        .slice(during)
        .filter((line) => line.includes('a handler failed and will be retried'));
      expect(retried.some((line) => line.includes('"handler":"receive-transfer"'))).toBe(true);
      // One for each handler, process and reason.
      expect(retried.length).toBeLessThan(40);
      expect(retried.every((line) => line.includes('"counted":false'))).toBe(true);
    }, patience);

    if (fault === 'refuses') await harness.proxy.accept();
    else harness.proxy.resume();
    await harness.expectWell();
    await harness.expectSettled(traffic);
    expect(harness.log.filter((line) => line.includes('dead letter'))).toEqual([]);
  },
);

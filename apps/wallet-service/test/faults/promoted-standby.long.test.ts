import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { FaultHarness } from './fault-harness.js';

const timeout = 240_000;
const patience = { timeout: 30_000, interval: 50 };

let harness: FaultHarness;

beforeEach(async () => {
  harness = await FaultHarness.start({ hasStandby: true });
});
afterEach(() => harness.end());

test('a promoted standby serves by itself, with everything that was acknowledged', { timeout }, async () => {
  const traffic = await harness.traffic();
  await vi.waitFor(() => expect(traffic.transfers.size).toBeGreaterThan(20), patience);
  await harness.killServer();
  harness.leadToStandby();
  await vi.waitFor(async () => {
    expect(await harness.readiness()).toMatchObject({
      status: 503,
      body: { shards: [{ status: 'ready' }, { status: 'unavailable', cause: 'in-recovery' }] },
    });
  }, patience);
  const sent = traffic.transfers.size;
  await vi.waitFor(() => expect(traffic.transfers.size).toBeGreaterThan(sent + 5), patience);

  await harness.onServer('select pg_promote()', 'postgres');
  await harness.expectWell();
  await harness.expectSettled(traffic);
  expect(harness.log.filter((line) => line.includes('dead letter'))).toEqual([]);
});

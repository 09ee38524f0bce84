import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { rowsOf } from '../database-session.js';
import { WalletClient, anOwner, problem } from '../wallet-client.js';
import { FaultHarness } from './fault-harness.js';

const timeout = 240_000;
const patience = { timeout: 60_000, interval: 100 };
/** What a process has done before it is killed is repeated by its successor. */
const nothingSaved = { 'cursor-save-ms': 60_000 };
/** The last process saves its cursors often, so that the end of delivery becomes visible. */
const savedSoon = { 'cursor-save-ms': 50 };

let harness: FaultHarness;

beforeEach(async () => {
  harness = await FaultHarness.start({ delivery: { 'lease-ms': 1_500, ...nothingSaved } });
});
afterEach(() => harness.end());

test(
  'a process without a shard in its configuration refunds nothing that the shard has received',
  { timeout },
  async () => {
    const traffic = await harness.traffic();
    const partial = await harness.startProcess('all', 'global');
    const client = new WalletClient(await partial.printed('is ready'));
    await setPaused('settle-transfer', true);
    await vi.waitFor(async () => expect(await received()).toBeGreaterThan(3), patience);
    // The process that is left gets the events of received, unsettled transfers, and cannot see on shard (1, 0) that they arrived.
    await harness.killService();
    await vi.waitFor(
      () => expect(partial.stderr).toContain('a handler failed and will be retried'),
      patience,
    );
    expect(partial.stderr).toMatch(
      /"handler":"receive-transfer".*"counted":false.*shard \(1, 0\) is not configured.*"remedy":"add the shard to framework.sharding.groups of this process; until then the event waits/,
    );
    const { global } = harness.shards;
    expect(await rowsOf(global, `select from transfers where state = 'REFUNDED'`)).toEqual([]);

    const isMissing = 'in the configuration of the process that was asked';
    const placed = await client.post('/wallets', { country: 'MX', ownerId: anOwner, currency: 'USD' });
    expect(placed).toMatchObject(problem(503, 'shard-unavailable'));
    expect(placed.body['detail']).toMatch(`Shard (1, 0) is unavailable: it is not ${isMissing}`);
    expect(partial.stderr).toMatch(
      /"path":"\/wallets".*"shard":"shard \(1, 0\)".*"reason":"shard \(1, 0\) is not configured in this process: add it to framework\.sharding\.groups[^"]*","msg":"requests are refused"/,
    );
    const [known] = await rowsOf(harness.shards.mexico, 'select id from wallets limit 1');
    const read = await client.get(`/wallets/${String(known?.['id'])}`);
    expect(read).toMatchObject(problem(404, 'wallet-not-found'));
    expect(read.body['detail']).toMatch(`its id names shard (1, 0), which is not ${isMissing}`);

    await setPaused('settle-transfer', false);
    await harness.startService('both', 'all', savedSoon);
    await harness.expectWell();
    await harness.expectSettled(traffic);
    expect(harness.log.filter((line) => line.includes('dead letter'))).toEqual([]);
  },
);

/** Pauses or resumes a handler, as an operator does. */
async function setPaused(handler: string, isPaused: boolean): Promise<void> {
  const { global, mexico } = harness.shards;
  const ids = 'select handler from eventlog.handler_names where name = $1';
  const text = `update eventlog.handlers set paused = $2 where handler in (${ids})`;
  for (const database of [global, mexico]) await rowsOf(database, text, [handler, isPaused]);
}

/** How many transfers from the shard (0, 0) are still in transit although the shard (1, 0) has received them. */
async function received(): Promise<number> {
  const { global, mexico } = harness.shards;
  const decided = await rowsOf(
    mexico,
    `select transfer_id as id from transfer_decisions where state = 'RECEIVED'`,
  );
  const inTransit = await rowsOf(global, `select id from transfers where state = 'INITIATED'`);
  const ids = new Set(decided.map(({ id }) => id));
  return inTransit.filter(({ id }) => ids.has(id)).length;
}

import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { rowsOf } from '../database-session.js';
import { problem } from '../wallet-client.js';
import { FaultHarness } from './fault-harness.js';

const timeout = 240_000;
const patience = { timeout: 60_000, interval: 50 };
/** What operators are told, wherever they look. */
const told = /takes no writes \(default_transaction_read_only is on\): turn that off/;

let harness: FaultHarness;

beforeEach(async () => {
  harness = await FaultHarness.start({ delivery: { 'lease-ms': 2_000 } });
});
afterEach(() => harness.end());

test.each([
  ['all sessions follow it', 'system', []],
  ['sessions keep it for their lives', 'database mexico', ['select pg_terminate_backend(pid) from sessions']],
])(
  'a read-only server is reported to every client and recovers by itself: %s',
  { timeout },
  async (_case, scope, ends) => {
    const traffic = await harness.traffic();
    const wallet = await harness.client.openWallet({ country: 'MX', currency: 'USD' });
    await harness.onServer(`alter ${scope} set default_transaction_read_only = on`, 'postgres');
    await harness.onServer('select pg_reload_conf()', 'postgres');
    const sessions = `with sessions as (select pid from pg_stat_activity where datname = 'mexico')`;
    for (const end of ends) await harness.onServer(`${sessions} ${end}`, 'postgres');

    const deposit = () => harness.client.post(`/wallets/${wallet.id}/deposit`, { amount: '1' });
    await vi.waitFor(async () => expect(await deposit()).toMatchObject({ status: 503 }), patience);
    expect(await deposit()).toMatchObject(problem(503, 'shard-unavailable'));
    expect(await harness.client.wallet(wallet.id)).toMatchObject({ version: wallet.version });
    expect(await harness.readiness()).toMatchObject({
      status: 503,
      body: { status: 'unavailable', shards: [{ status: 'ready' }, { status: 'unavailable' }] },
    });
    const failures = () =>
      harness.log.filter((line) => line.includes('delivery continues after an error') && told.test(line));
    await vi.waitFor(() => expect(failures()).not.toEqual([]), patience);
    // The fault lasts until the leases have ended, so that everything starts again afterwards.
    await vi.waitFor(async () => expect(await liveProcesses()).toEqual([]), patience);
    expect(failures().length).toBeLessThan(3);
    expect(harness.log.some((line) => line.includes('"POST"') && told.test(line))).toBe(true);

    await harness.onServer(`alter ${scope} reset default_transaction_read_only`, 'postgres');
    await harness.onServer('select pg_reload_conf()', 'postgres');
    await harness.expectWell();
    await harness.expectSettled(traffic);
  },
);

/** The processes whose leases on the shard (1, 0) have not ended. */
async function liveProcesses(): Promise<readonly unknown[]> {
  return rowsOf(
    harness.shards.mexico,
    'select process_id from eventlog.processes where until_date > clock_timestamp()',
  );
}

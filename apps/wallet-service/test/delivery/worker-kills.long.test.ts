import { DeliveryOperator } from '@framework/events';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import type { Wallet } from '../../src/wallet/wallet.js';
import { rowsOf } from '../database-session.js';
import { firstVersions } from './deliveries.js';
import { Fleet } from './fleet.js';

const walletCount = 100;
/** Each of this many clients deposits into the wallets in turn, so that the events of a wallet follow each other closely. */
const clientCount = 10;
/** Ten thousand deposits, with kills until all are delivered, take minutes: `FULL_KILL_TEST=1` requests them. */
const full = process.env['FULL_KILL_TEST'] === '1';
const depositsPerWallet = full ? 100 : 20;
/** One in this many deposits names a recipient. */
const depositsPerRecipient = 4;
/** The number of commits before delivery begins. */
const backlogMin = 1_000;
const workerCount = 3;
const killIntervalMs = 1_000;
/** How many events were committed and not delivered when a worker is killed. */
const inFlightMin = 300;
const killsMin = 5;
/** The maximum number of kills, after which the log drains without them, so that losses are visible. */
const killsMax = full ? Infinity : 15;
/** The cursors in two databases, of four handlers of the service and two that record. */
const cursorCount = 2 * 6;

let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.create();
});
afterAll(() => fleet.end());

test(
  'workers that are killed every second lose nothing, keep the order and repeat no effect',
  { timeout: 300_000 },
  async () => {
    const wallets = await Promise.all(
      Array.from({ length: walletCount }, (_unused, n) => fleet.openWallet(n % 2 === 0 ? 'DE' : 'MX')),
    );
    let committedCount = walletCount;
    let loaded = false;
    const load = Promise.all(
      Array.from({ length: clientCount }, async (_unused, client) => {
        for (let n = client; n < walletCount; n += clientCount) {
          await deposits(wallets[n]!, n, () => committedCount++);
        }
      }),
    ).then(() => (loaded = true));
    await vi.waitFor(() => expect(committedCount).toBeGreaterThan(backlogMin), { timeout: 30_000 });

    const workers = Array.from({ length: workerCount }, () => fleet.startRecording());
    const kills: number[] = [];
    while (kills.length < killsMax) {
      // On a machine that is too slow to start a process in a second, each lives longer, so that some work gets done.
      await Promise.all([delay(killIntervalMs), ...workers.map((worker) => worker.printed('is ready'))]);
      const inFlightCount = committedCount - (await fleet.deliveries.count('record-deposits'));
      if (loaded && inFlightCount < inFlightMin) break;
      if (inFlightCount < inFlightMin) continue;
      workers.shift()?.kill('SIGKILL');
      workers.push(fleet.startRecording());
      kills.push(inFlightCount);
    }
    await load;
    process.stdout.write(`${kills.length} workers killed, with ${kills.join(', ')} events in flight\n`);
    expect(kills.length).toBeGreaterThanOrEqual(killsMin);

    await nothingIsPending();
    const versions = Array.from({ length: 1 + depositsPerWallet }, (_unused, n) => n + 1);
    for (const handler of ['record-deposits', 'record-everything']) {
      const first = firstVersions(await fleet.deliveries.of(handler));
      expect(first.size).toBe(walletCount);
      for (const { id } of wallets) expect(first.get(id.value)).toEqual(versions);
    }
    expect(await notified()).toEqual(wallets.flatMap((_wallet, n) => recipients(n)).toSorted());
    expect(workers.filter(({ running }) => !running).map(({ stderr }) => stderr)).toEqual([]);
  },
);

async function deposits(wallet: Wallet, n: number, onCommitted: () => void): Promise<void> {
  for (let count = 0; count < depositsPerWallet; count++) {
    await fleet.deposit(wallet, count % depositsPerRecipient === 0 ? `${n}-${count}` : undefined);
    onCommitted();
  }
}

/** The recipients named by the deposits into a wallet, each once. */
function recipients(n: number): readonly string[] {
  const count = Math.ceil(depositsPerWallet / depositsPerRecipient);
  return Array.from({ length: count }, (_unused, index) => `${n}-${index * depositsPerRecipient}`);
}

/** The notified recipients, once for each notification. */
async function notified(): Promise<readonly string[]> {
  const { global, mexico } = fleet.databases;
  const rows = await Promise.all(
    [global, mexico].map((database) => rowsOf(database, 'select recipient from notifications')),
  );
  return rows
    .flat()
    .map(({ recipient }) => String(recipient))
    .toSorted();
}

async function nothingIsPending(): Promise<void> {
  const operator = new DeliveryOperator(fleet.service.databases);
  await vi.waitFor(
    async () => {
      const { items: lags } = await operator.lag();
      expect(lags).toHaveLength(cursorCount);
      for (const lag of lags) expect(lag).toMatchObject({ pendingCount: 0, blockedCount: 0, deadCount: 0 });
    },
    { timeout: 120_000, interval: 200 },
  );
}

import { setTimeout as pause } from 'node:timers/promises';
import { Delivery } from '@framework/events';
import { Big } from 'big.js';
import pg from 'pg';
import { type Wallet, WalletDepositMoneyAction } from 'wallet-service';
import type { Benchmark } from '../benchmark/benchmark.js';
import { quantile } from '../benchmark/measure-contenders.js';
import { openWalletService, openWallets, principal } from '../load/bench-wallets.js';
import { addDeposits } from '../load/add-deposits.js';
import { depositAtRate, depositKey, epochMs } from '../load/deposit-at-rate.js';
import { lagsOf } from './lag.js';
import { recordingHandler } from './recording-handler.js';
import { untilTrue } from './until-true.js';

const depositsPerSecond = 200;
const walletCount = 200;
const warmUpMs = 3_000;
const windowMs = 10_000;
const heldDeposits = 3;
/** A shorter lag counts as this long, because the time of a garbage collection has nothing to do with open transactions. */
const lagMinMs = 5;

/** How much one write transaction that stays open delays the events of all other transactions. */
export const heldTransaction: Benchmark = {
  name: 'delivery-held-transaction',
  async run({ server, rounds, scale, say }) {
    const url = await server.createDatabase();
    const service = await openWalletService([url]);
    const [held, ...wallets] = await openWallets(service, walletCount + 1);
    if (held === undefined) throw new Error('No wallets were opened');
    const handledMs = new Map<string, number>();
    const handler = recordingHandler('beside-a-held-transaction', ({ modelId, modelVersion }) => {
      handledMs.set(depositKey(modelId, modelVersion), epochMs());
    });
    const delivery = new Delivery({
      databases: service.databases,
      executor: service.executor,
      handlers: [handler],
    });
    delivery.start();
    const window = async (durationMs = windowMs * scale): Promise<readonly number[]> =>
      lagsOf(await depositAtRate(service, wallets, depositsPerSecond, pause(durationMs)), handledMs);
    // The held transaction copies the event of this deposit.
    await service.executor.execute(principal, WalletDepositMoneyAction, {
      walletId: held.id,
      amount: Big(1),
    });
    await window(warmUpMs);
    const lags = { free: [] as number[], held: [] as number[] };
    const contenders = [
      { lagsMs: lags.free, name: 'free', measure: () => window() },
      {
        lagsMs: lags.held,
        name: 'with a held transaction',
        measure: () => besideOpenTransaction(url, held, handledMs, () => window()),
      },
    ];
    for (let round = 1; round <= rounds; round++) {
      for (const { lagsMs, name, measure } of round % 2 === 0 ? contenders : contenders.toReversed()) {
        const measured = await measure();
        lagsMs.push(...measured);
        say(`  round ${round}, ${name}: p99 ${quantile(measured, 0.99).toFixed(2)} ms`);
      }
    }
    await delivery.stop();
    await service.databases.close();
    const measured = { free: quantile(lags.free, 0.99), held: quantile(lags.held, 0.99) };
    return [
      {
        title: `a write transaction held open for ${(windowMs * scale) / 1_000} s: lag p99 of the other events`,
        value: Math.max(measured.held, lagMinMs) / Math.max(measured.free, lagMinMs),
        unit: '×',
        atMost: 2,
        measured,
      },
    ];
  },
};

/** Runs work while a transaction that has written events is open; they must arrive after its commit, in order. */
async function besideOpenTransaction(
  url: string,
  { id }: Wallet,
  handledMs: ReadonlyMap<string, number>,
  work: () => Promise<readonly number[]>,
): Promise<readonly number[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query('begin');
    const versions = await addDeposits(client, id.value, heldDeposits);
    const lagsMs = await work();
    const keys = versions.map((version) => depositKey(id.value, version));
    if (keys.some((key) => handledMs.has(key))) throw new Error('An event was handled before its commit');
    await client.query('commit');
    await untilTrue("the held transaction's events are handled", () =>
      keys.every((key) => handledMs.has(key)),
    );
    return lagsMs;
  } finally {
    await client.end();
  }
}

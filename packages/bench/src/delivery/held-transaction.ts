import { setTimeout as pause } from 'node:timers/promises';
import { Delivery } from '@framework/events';
import { Big } from 'big.js';
import pg from 'pg';
import { type Wallet, WalletDepositMoneyAction } from 'wallet-service';
import type { Benchmark } from '../benchmark/benchmark.js';
import { median, quantile } from '../benchmark/measure-sides.js';
import { openService, openWallets, principal } from '../load/bench-wallets.js';
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

/** What a write transaction that stays open costs the events of all others. */
export const heldTransaction: Benchmark = {
  name: 'delivery-held-transaction',
  async run({ server, rounds, scale, say }) {
    const url = await server.createDatabase();
    const service = await openService([url]);
    const [held, ...wallets] = await openWallets(service, walletCount + 1);
    if (held === undefined) throw new Error('No wallets were opened');
    const handledMs = new Map<string, number>();
    const handler = recordingHandler('beside-a-held-transaction', ({ modelId, modelVersion }) => {
      handledMs.set(depositKey(modelId, modelVersion), epochMs());
    });
    const delivery = new Delivery({ ...service, handlers: [handler] });
    delivery.start();
    const window = async (durationMs = windowMs * scale): Promise<number> => {
      const deposits = await depositAtRate(service, wallets, depositsPerSecond, pause(durationMs));
      return quantile(await lagsOf(deposits, handledMs), 0.99);
    };
    // The held transaction copies it.
    await service.executor.execute(principal, WalletDepositMoneyAction, {
      walletId: held.id,
      amount: Big(1),
    });
    await window(warmUpMs);
    const free: number[] = [];
    const beside: number[] = [];
    for (let round = 1; round <= rounds; round++) {
      free.push(await window());
      beside.push(await besideOpenTransaction(url, held, handledMs, () => window()));
      say(
        `  round ${round}: p99 ${free.at(-1)?.toFixed(2)} ms, with a held transaction ${beside.at(-1)?.toFixed(2)} ms`,
      );
    }
    await delivery.stop();
    await service.databases.close();
    const measured = { free: median(free), held: median(beside) };
    return [
      {
        title: `a write transaction held open for ${(windowMs * scale) / 1_000} s: lag p99 of the other events`,
        value: measured.held / measured.free,
        unit: '×',
        atMost: 2,
        measured,
      },
    ];
  },
};

/** Runs work while a transaction is open that has written events; they must arrive after its commit, in order. */
async function besideOpenTransaction(
  url: string,
  { id }: Wallet,
  handledMs: ReadonlyMap<string, number>,
  work: () => Promise<number>,
): Promise<number> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query('begin');
    const versions = await addDeposits(client, id.value, heldDeposits);
    const value = await work();
    const keys = versions.map((version) => depositKey(id.value, version));
    if (keys.some((key) => handledMs.has(key))) throw new Error('An event was handled before its commit');
    await client.query('commit');
    await untilTrue("the held transaction's events are handled", () =>
      keys.every((key) => handledMs.has(key)),
    );
    return value;
  } finally {
    await client.end();
  }
}

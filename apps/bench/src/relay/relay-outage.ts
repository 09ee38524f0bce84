import { Delivery } from '@framework/events';
import { type Broker, relay } from '@framework/relay';
import { Big } from 'big.js';
import { WalletDepositMoneyAction } from 'wallet-service';
import type { Benchmark } from '../benchmark/benchmark.js';
import { median, quantile } from '../benchmark/measure-contenders.js';
import { untilTrue } from '../delivery/until-true.js';
import { openWalletService, openWallets, principal } from '../load/bench-wallets.js';
import { runLoad } from '../load/run-load.js';

const clientCount = 4;
const walletCount = 200;
const segmentMs = 2_000;

/** Whether requests take longer while the broker of a relay in the same process is down. */
export const relayOutage: Benchmark = {
  name: 'relay-outage',
  async run({ server, rounds, scale, say }) {
    const service = await openWalletService([await server.createDatabase()]);
    const wallets = await openWallets(service, walletCount);
    let isUp = true;
    let confirmedCount = 0;
    const broker: Broker = {
      publish: async (messages) => {
        if (!isUp) throw new Error('connect ECONNREFUSED 127.0.0.1:4222');
        confirmedCount += messages.length;
        return messages.map(() => ({ kind: 'confirmed' }));
      },
      ping: async () => undefined,
      close: async () => undefined,
    };
    const delivery = new Delivery({
      databases: service.databases,
      executor: service.executor,
      handlers: [relay({ name: 'events-to-broker', broker })],
      onAttemptFailed: () => undefined,
    });
    delivery.start();
    await delivery.started();
    let depositCount = 0;
    /** The median latency of a deposit. */
    const segment = async (): Promise<number> => {
      const load = await runLoad(
        async () => {
          const wallet = wallets[depositCount++ % walletCount];
          if (wallet === undefined) throw new Error('No wallets were opened');
          await service.executor.execute(principal, WalletDepositMoneyAction, {
            walletId: wallet.id,
            amount: Big(1),
          });
        },
        { clientCount, durationMs: segmentMs * scale },
      );
      return quantile(load.latenciesMs, 0.5);
    };
    const [up, down]: [number[], number[]] = [[], []];
    await segment();
    for (let round = 0; round < rounds * 2; round++) {
      for (const state of round % 2 === 0 ? [true, false] : [false, true]) {
        isUp = state;
        (state ? up : down).push(await segment());
        isUp = true;
        await untilTrue('everything has arrived', () => confirmedCount === depositCount);
      }
      say(
        `  round ${round + 1}: ${up.at(-1)?.toFixed(3)} ms, and ${down.at(-1)?.toFixed(3)} ms with the broker down`,
      );
    }
    await delivery.stop();
    await service.databases.close();
    const measured = { up: median(up), down: median(down) };
    return [
      {
        title: 'request latency (median) with the broker down ÷ with the broker up',
        value: measured.down / measured.up,
        unit: '×',
        atMost: 1.01,
        measured,
      },
    ];
  },
};

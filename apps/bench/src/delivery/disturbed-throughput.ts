import { Delivery } from '@framework/events';
import type { WalletService } from 'wallet-service';
import type { Benchmark } from '../benchmark/benchmark.js';
import { measureContenders } from '../benchmark/measure-contenders.js';
import { fillWallets } from './backlog.js';
import { openWalletService } from '../load/bench-wallets.js';
import { type RecordingHandler, recordingHandler } from './recording-handler.js';

const walletCount = 1_000;
const eventCount = 100_000;

/** What a wallet whose events always fail, and a handler that never returns, cost the others. */
export const disturbedThroughput: Benchmark = {
  name: 'delivery-disturbed',
  async run({ server, rounds, scale, say }) {
    const count = Math.max(2, Math.round((eventCount * scale) / walletCount)) * walletCount;
    const url = await server.createDatabase();
    const service = await openWalletService([url]);
    const [failing] = await fillWallets(service, url, walletCount, count);
    const perWalletCount = count / walletCount;
    let run = 0;
    const measured = await measureContenders(
      [
        {
          name: 'undisturbed',
          measure: () => drain(service, recordingHandler(`undisturbed-${run++}`), count),
        },
        {
          name: 'one wallet fails',
          measure: () => {
            const handler = recordingHandler(`failing-${run++}`, ({ modelId }) => {
              if (modelId === failing?.id.value) throw new Error('This wallet always fails');
            });
            return drain(service, handler, count - perWalletCount);
          },
        },
        {
          name: 'one handler hangs',
          measure: () => {
            const hanging = recordingHandler(`hanging-${run}`, () => new Promise(() => undefined));
            return drain(service, recordingHandler(`beside-${run++}`), count, hanging);
          },
        },
      ] as const,
      { rounds, say },
    );
    await service.databases.close();
    const shareOf = (contender: 'one wallet fails' | 'one handler hangs') => ({
      value: (measured[contender] / measured.undisturbed) * 100,
      unit: '%',
      atLeast: 95,
      measured: { undisturbed: measured.undisturbed, disturbed: measured[contender] },
    });
    return [
      { title: 'one wallet of 1,000 always fails: throughput of the others', ...shareOf('one wallet fails') },
      { title: 'one handler hangs: throughput of another one', ...shareOf('one handler hangs') },
    ];
  },
};

async function drain(
  service: WalletService,
  handler: RecordingHandler,
  count: number,
  ...others: readonly RecordingHandler[]
): Promise<number> {
  const delivery = new Delivery({
    databases: service.databases,
    executor: service.executor,
    handlers: [handler, ...others],
  });
  const startedAtMs = performance.now();
  delivery.start();
  await handler.reached(count);
  const perSecond = (count / (performance.now() - startedAtMs)) * 1_000;
  await delivery.stop({ timeoutMs: 100 });
  if (handler.count !== count) throw new Error(`A handler was given ${handler.count} events of ${count}`);
  return perSecond;
}

import { Delivery } from '@framework/events';
import { recordingHandler } from '../delivery/recording-handler.js';
import type { DeliveringProcessMessage, DeliveringProcessOptions } from '../delivery/delivering-process.js';
import { openWalletService } from '../load/bench-wallets.js';
import { depositKey, epochMs } from '../load/deposit-at-rate.js';

const reportIntervalMs = 50;

const { urls, handler } = JSON.parse(process.argv[2] ?? '') as DeliveringProcessOptions;
let calls: (readonly [string, number])[] = [];
const recording = recordingHandler(handler, ({ modelId, modelVersion }) => {
  calls.push([depositKey(modelId, modelVersion), epochMs()]);
});
const service = await openWalletService(urls);
const delivery = new Delivery({
  databases: service.databases,
  executor: service.executor,
  handlers: [recording],
});
delivery.start();
const timer = setInterval(report, reportIntervalMs);
process.on('SIGTERM', () => void stop());
process.on('disconnect', () => process.exit());
send({ kind: 'started' });

function report(): void {
  if (calls.length > 0) send({ kind: 'handled', calls });
  calls = [];
}

async function stop(): Promise<void> {
  clearInterval(timer);
  await delivery.stop();
  await service.databases.close();
  report();
  process.disconnect();
}

function send(message: DeliveringProcessMessage): void {
  process.send?.(message);
}

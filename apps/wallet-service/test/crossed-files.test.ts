import { type EventHandler, FrameworkEventHandler } from '@framework/events';
import { Session } from 'node:inspector/promises';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { startWorker } from './started-service.js';
import { WalletMoneyDepositedEvent } from '../src/wallet/wallet.js';
import { Fleet } from './delivery/fleet.js';
import { WalletClient } from './wallet-client.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
/**
 * Of several passes the one with the fewest files counts: the others include a renewal of leases, a poll or a sweep. On
 * a busy machine many passes do, so passes are made until one is short enough.
 */
const passesMin = 8;
const passesMax = 200;
/** Entries of packages, which only pass names on. */
const entries = /\/src\/(index|adapter)\.ts$/;
/** What only watches the way of a deposit. */
const watching = /^packages\/(telemetry\/|core\/src\/observer)/;
const logger = pino({ level: 'silent' });

let fleet: Fleet;
const inspector = new Session();

beforeAll(async () => {
  // Otherwise cursors would be saved in every pass.
  fleet = await Fleet.create({ 'cursor-save-ms': 1_000 });
  inspector.connect();
  await inspector.post('Profiler.enable');
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
});
afterAll(async () => {
  inspector.disconnect();
  await fleet.end();
});

test('a deposit runs through at most 53 source files from execution to commit', async () => {
  const wallet = await fleet.openWallet('DE');
  const files = await fewestFiles(53, () => fleet.deposit(wallet), /^(packages|apps)\/[^/]+\/src\//);
  expect(files).toSatisfy(({ length }) => length <= 53);
});

test('an event runs through at most 26 files of the packages from log to handler', async () => {
  const handler = new TellDeposit();
  const worker = await startWorker({ config: fleet.config, logger, handlers: [handler] });
  try {
    await worker.service.delivery.started();
    const http = fleet.start('http');
    const client = new WalletClient(await http.served());
    const { id } = await client.openWallet({ country: 'DE' });
    const pass = async (): Promise<void> => {
      const handled = new Promise<void>((resolve) => (handler.onDeposit = resolve));
      await client.post(`/wallets/${id}/deposit`, { amount: '1' });
      await handled;
    };
    const files = await fewestFiles(26, pass, /^packages\/[^/]+\/src\//);
    expect(files).toSatisfy(({ length }) => length <= 26);
  } finally {
    await worker.stop();
  }
});

@FrameworkEventHandler({ name: 'tell-deposit' })
class TellDeposit implements EventHandler<WalletMoneyDepositedEvent> {
  readonly event = WalletMoneyDepositedEvent;
  onDeposit = (): void => undefined;

  async handle(): Promise<void> {
    this.onDeposit();
  }
}

/** The counted files in which functions ran, in the pass with the fewest. */
async function fewestFiles(
  enough: number,
  pass: () => Promise<unknown>,
  counted: RegExp,
): Promise<readonly string[]> {
  let fewest: readonly string[] = [];
  for (let count = 0; count < passesMin || (fewest.length > enough && count < passesMax); count++) {
    await inspector.post('Profiler.takePreciseCoverage');
    await pass();
    const { result } = await inspector.post('Profiler.takePreciseCoverage');
    const files = result
      .filter(({ functions }) => functions.some(({ ranges }) => ranges.some((range) => range.count > 0)))
      .map(({ url }) => url.replace(/^file:\/\//, '').replace(root, ''))
      .filter((file) => counted.test(file) && !entries.test(file) && !watching.test(file))
      .sort();
    if (count === 0 || files.length < fewest.length) fewest = files;
  }
  return fewest;
}

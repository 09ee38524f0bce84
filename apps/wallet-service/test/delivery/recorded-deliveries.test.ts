import { parseFrameworkConfig } from '@framework/core';
import {
  type BatchEventHandler,
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
} from '@framework/events';
import { CallRecorder, DeliveryRecorder, checkRecord } from '@framework/testing/record';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { type RunningService, startWorker } from '../started-service.js';
import { WalletMoneyDepositedEvent } from '../../src/wallet/wallet.js';
import { type TestService, configTree, startTestService, stopTestService } from '../start-test-service.js';
import type { Answer } from '../wallet-client.js';

/** Fails at every second event when it is first delivered. */
@FrameworkEventHandler({ name: 'watch-deposits', startFrom: 'beginning', retry: { backoffBaseMs: 10 } })
class WatchDeposits implements EventHandler<WalletMoneyDepositedEvent> {
  readonly event = WalletMoneyDepositedEvent;

  async handle({ modelVersion, attempt }: EventEnvelope<WalletMoneyDepositedEvent>): Promise<void> {
    if (modelVersion % 2 === 0 && attempt === 1) throw new Error('not the first time');
  }
}

@FrameworkEventHandler({ name: 'watch-everything', startFrom: 'beginning' })
class WatchEverything implements BatchEventHandler<undefined> {
  readonly event = 'all';

  async handleBatch(): Promise<void> {}
}

/** Cursors that pass only unwanted events are saved often, so that the end of delivery becomes visible. */
const delivery = { 'cursor-save-ms': 10 };
const deliveries = new DeliveryRecorder();
const recorder = new CallRecorder<Answer>({
  judge: ({ status, body }) =>
    status < 300
      ? { outcome: 'ok', says: String(status), result: body }
      : { outcome: 'refused', says: String(status) },
});
let service: TestService;
let worker: RunningService;

beforeAll(async () => {
  service = await startTestService({ delivery });
  worker = await startWorker({
    config: parseFrameworkConfig(configTree(service, { delivery })),
    logger: pino({ level: 'silent' }),
    handlers: deliveries.around([new WatchDeposits(), new WatchEverything()]),
  });
});
afterAll(async () => {
  await worker.stop();
  await stopTestService(service);
});

function violations(): Promise<readonly string[]> {
  return checkRecord({
    recorder,
    deliveries,
    databases: [service.global.url, service.mexico.url],
    tables: { Wallet: 'wallets' },
    mayBeThere: ({ name }) => name === 'WalletCreateAction',
  });
}

test('the events that handlers received are compared with the log', async () => {
  for (const country of ['DE', 'MX']) {
    const { id } = await service.client.openWallet({ country });
    const deposit = (): Promise<unknown> =>
      recorder.call('deposit', (key) =>
        service.client.postKeyed(`/wallets/${id}/deposit`, { amount: '1' }, key),
      );
    await Promise.all([deposit(), deposit(), deposit()]);
  }
  expect(await violations()).toEqual([]);
  const { records } = deliveries;
  const tries = records.filter(({ handler }) => handler === 'watch-deposits');
  expect(tries.length).toBeGreaterThan(6);
  expect(new Set(tries.map(({ eventId }) => eventId)).size).toBe(6);

  const place = records.findIndex(({ handler }) => handler === 'watch-everything');
  const [first] = records.splice(place, 1);
  expect(await violations()).toContainEqual(
    expect.stringMatching(/^watch-everything: .+ was never handled$/),
  );
  records.splice(place, 0, first!);
  records.push({ ...first!, text: 'another one' });
  expect(await violations()).toContainEqual(expect.stringMatching(/: repeats are not the same$/));
  records.splice(-1, 1, { ...first!, eventId: 'nobody' });
  expect(await violations()).toEqual(['watch-everything received nobody, which was never committed']);
});

test('a check waits for handlers that are not registered yet, and then reports them', async () => {
  @FrameworkEventHandler({ name: 'watch-nothing' })
  class WatchNothing extends WatchEverything {}
  const idle = new DeliveryRecorder();
  idle.around([new WatchNothing()]);
  const found = await checkRecord({
    recorder,
    deliveries: idle,
    databases: [service.global.url],
    tables: {},
    restWithinMs: 200,
    mayBeThere: () => true,
  });
  expect(found).toContain('watch-nothing is not registered yet after 200 ms');
});

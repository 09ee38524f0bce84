import { FaultProxy } from '@framework/testing';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test, vi } from 'vitest';

import { startTestService, stopTestService } from '../start-test-service.js';
import type { OwnBroker } from '../../../../packages/relay/test/faults/own-broker.js';
import { ownNats } from '../../../../packages/relay/test/faults/own-nats.js';
import { ownRabbitMq } from '../../../../packages/relay/test/faults/own-rabbitmq.js';
import { ownRedis } from '../../../../packages/relay/test/faults/own-redis.js';

const program = fileURLToPath(new URL('../../../event-printer/src/main.ts', import.meta.url));
const patience = { timeout: 60_000, interval: 50 };

interface Printer {
  /** What it has printed so far. */
  readonly printed: () => string;
  /** Resolves with its exit code. */
  readonly ended: Promise<number | null>;
}

async function startPrinter(protocol: string, port: number): Promise<Printer> {
  const printer = spawn(process.execPath, [program, `${protocol}://127.0.0.1:${port}`], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void printer.kill('SIGKILL'));
  let output = '';
  for (const stream of [printer.stdout, printer.stderr])
    stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const ended = once(printer, 'close').then(([code]) => code as number | null);
  await vi.waitFor(() => expect(output).toContain(`Reading from 127.0.0.1:${port}\n`), patience);
  return { printed: () => output, ended };
}

async function startBroker(open: () => Promise<OwnBroker>): Promise<OwnBroker> {
  const broker = await open();
  onTestFinished(() => broker.end());
  await broker.start();
  return broker;
}

function testPrinter(name: string, protocol: string, open: (() => Promise<OwnBroker>) | undefined): void {
  test.skipIf(open === undefined)(
    `a consumer that knows nothing of the framework prints the events of the wallet service from ${name}`,
    { timeout: 120_000 },
    async () => {
      if (open === undefined) throw new Error(`${name} is missing`);
      const broker = await startBroker(open);
      const { printed } = await startPrinter(protocol, broker.port);
      const relay = [{ name: 'events-to-broker', 'start-from': 'beginning', ...broker.section }];
      const service = await startTestService({ relay });
      onTestFinished(() => stopTestService(service));
      const { id } = await service.client.openWallet({ country: 'MX', currency: 'MXN' });
      await service.client.post(`/wallets/${id}/deposit`, { amount: '25.50' });
      const event = (type: string, version: number): string =>
        `com.example.wallet.${type} of Wallet ${id}, version ${version}: {`;
      await vi.waitFor(() => {
        expect(printed()).toContain(event('WalletCreatedEvent', 1));
        expect(printed()).toContain(event('WalletMoneyDepositedEvent', 2));
      }, patience);
      expect(printed()).toContain('"amount":"25.5"');
    },
  );

  test.skipIf(open === undefined)(
    `a consumer ends with an error when its connection to ${name} was cut, or the server has stopped`,
    { timeout: 120_000 },
    async () => {
      if (open === undefined) throw new Error(`${name} is missing`);
      const broker = await startBroker(open);
      for (const end of ['close', 'reset', 'SIGTERM', 'SIGKILL'] as const) {
        const proxy = await FaultProxy.to({ host: '127.0.0.1', port: broker.port });
        onTestFinished(() => proxy.close());
        const { printed, ended } = await startPrinter(protocol, proxy.port);
        if (end === 'close' || end === 'reset') proxy.cut(end);
        else await broker.stop(end);
        expect({ end, code: await within(ended) }).toEqual({ end, code: 1 });
        expect(printed()).toMatch(
          new RegExp(`^Reading from 127.0.0.1:${proxy.port} has ended: \\w.*\n$`, 'm'),
        );
        if (end === 'SIGTERM') await broker.start();
      }
    },
  );
}

/** What the process has ended with, or `undefined` while it still runs. */
function within(ended: Promise<number | null>): Promise<number | null | undefined> {
  return Promise.race([ended, delay(patience.timeout, undefined, { ref: false })]);
}

testPrinter('NATS', 'nats', await ownNats());
testPrinter('RabbitMQ', 'amqp', await ownRabbitMq());
testPrinter('Redis', 'redis', await ownRedis());

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test, vi } from 'vitest';

import { startTestService, stopTestService } from '../start-test-service.js';
import type { OwnBroker } from '../../../../packages/relay/test/faults/own-broker.js';
import { ownNats } from '../../../../packages/relay/test/faults/own-nats.js';
import { ownRabbitMq } from '../../../../packages/relay/test/faults/own-rabbitmq.js';
import { ownRedis } from '../../../../packages/relay/test/faults/own-redis.js';

const program = fileURLToPath(new URL('../../../event-printer/src/main.ts', import.meta.url));
const patience = { timeout: 60_000, interval: 50 };

/** What a printer of this broker has printed so far. */
function printFrom(url: string): () => string {
  const printer = spawn(process.execPath, [program, url], { stdio: ['ignore', 'pipe', 'pipe'] });
  onTestFinished(() => void printer.kill('SIGKILL'));
  let printed = '';
  for (const stream of [printer.stdout, printer.stderr])
    stream.on('data', (chunk: Buffer) => (printed += chunk.toString()));
  return () => printed;
}

function testPrinter(name: string, protocol: string, open: (() => Promise<OwnBroker>) | undefined): void {
  test.skipIf(open === undefined)(
    `a consumer that knows nothing of the framework prints the events of the wallet service from ${name}`,
    { timeout: 120_000 },
    async () => {
      if (open === undefined) throw new Error(`${name} is missing`);
      const broker = await open();
      onTestFinished(() => broker.end());
      await broker.start();
      const relay = [{ name: 'events-to-broker', 'start-from': 'beginning', ...broker.section }];
      const { port } = broker;
      const printed = printFrom(`${protocol}://127.0.0.1:${port}`);
      await vi.waitFor(() => expect(printed()).toContain(`Reading from 127.0.0.1:${port}`), patience);
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
}

testPrinter('NATS', 'nats', await ownNats());
testPrinter('RabbitMQ', 'amqp', await ownRabbitMq());
testPrinter('Redis', 'redis', await ownRedis());

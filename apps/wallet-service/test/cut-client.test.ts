import { FaultProxy, type ProxyMessage, type MessageOutcome } from '@framework/testing';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type Problem, walletClient } from 'wallet-client';

import { rowsOf } from './database-session.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { anOwner } from './wallet-client.js';

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => stopTestService(service));

/** The published client, behind a network that does what `judge` says. */
async function clientBehind(judge: (message: ProxyMessage) => MessageOutcome) {
  const { hostname: host, port } = new URL(service.url);
  const proxy = await FaultProxy.to({ host, port: Number(port) });
  onTestFinished(() => proxy.close());
  proxy.judge = judge;
  const { GET, POST } = walletClient({ url: `http://${proxy.host}:${proxy.port}`, attemptsMax: 30 });
  const open = async (): Promise<string> => {
    const body = { country: 'DE', ownerId: anOwner, currency: 'EUR', initialBalance: '100' };
    const { data } = await POST('/wallets', { body });
    if (data === undefined) throw new Error('The wallet was not opened');
    return data.id;
  };
  return { GET, POST, open, proxy };
}

test('every write through a network that cuts has one effect', async () => {
  let count = 0;
  const cuts: MessageOutcome[] = ['cut', 'forward-and-cut'];
  const { GET, POST, open, proxy } = await clientBehind(() =>
    // Every third message is cut: requests and answers alike, before and after they have arrived.
    ++count % 3 === 0 ? (cuts[(count / 3) % 2] ?? 'cut') : 'forward',
  );
  const id = await open();
  const other = await open();
  const path = { id };
  const writes = Array.from({ length: 10 }, async () => {
    const deposit = await POST('/wallets/{id}/deposit', { params: { path }, body: { amount: '2.50' } });
    expect(deposit.data).toMatchObject({ id });
    const transfer = await POST('/transfers', { body: { sourceId: id, destId: other, amount: '1' } });
    expect(transfer.data).toMatchObject({ sourceId: id });
  });
  await Promise.all(writes);
  const read = await GET('/wallets/{id}', { params: { path } });
  expect(read.data).toMatchObject({ balance: '115', version: 21 });
  expect(proxy.connectionCount).toBeGreaterThan(10);
  expect(await rowsOf(service.global, 'select count(*)::int as count from wallets')).toEqual([{ count: 2 }]);
});

test('a refusal is a typed problem', async () => {
  const { POST, open } = await clientBehind(() => 'forward');
  const path = { id: await open() };
  const { error } = await POST('/wallets/{id}/withdraw', { params: { path }, body: { amount: '101' } });
  const code: Problem['code'] | undefined = error?.code;
  expect(code).toBe('insufficient-funds');
});

import { ShardIdentifier, ShardedId } from '@framework/core';
import type { FaultProxy } from '@framework/testing';
import assert from 'node:assert/strict';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import { Wallet } from '../src/wallet/wallet.js';
import { lockedCount, rowsOf, withSession } from './database-session.js';
import { startProxiedService } from './start-proxied-service.js';
import { type TestService, startTestService, stopTestService } from './start-test-service.js';
import { problem } from './wallet-client.js';

/** A port on which nothing listens: it is reserved, and no client can guess it. */
const closedPort = 1;

const unavailable = {
  ...problem(503, 'shard-unavailable'),
  headers: { 'content-type': 'application/problem+json', 'retry-after': '1' },
  body: {
    code: 'shard-unavailable',
    // No internal details: no address, no text of a server.
    detail: expect.stringMatching(
      /^Shard \(\d, 0\) is unavailable: its database server cannot be reached\. Nothing was written; try again later\.$/,
    ) as string,
  },
};

const overloaded = {
  ...unavailable,
  body: {
    code: 'shard-unavailable',
    detail:
      'Shard (0, 0) is unavailable: it is overloaded, or does not answer in time. Nothing was written; try again later.',
  },
};

describe('a shard whose database never answered', () => {
  let service: TestService;

  beforeAll(async () => {
    service = await startTestService({ thirdPort: closedPort });
    await vi.waitFor(
      async () => {
        const states = (await service.service.databases.status()).map(({ ready }) => ready);
        assert.deepEqual(states, [true, true, false]);
      },
      { timeout: 30_000 },
    );
  });
  afterAll(() => stopTestService(service));

  test('is unavailable while the others serve', async () => {
    const { value: id } = ShardedId.generate(Wallet, ShardIdentifier.of(2, 0));
    expect(await service.client.get(`/wallets/${id}`)).toMatchObject(unavailable);
    expect(await service.client.post(`/wallets/${id}/deposit`, { amount: '1' })).toMatchObject(unavailable);
    const wallet = await service.client.openWallet({ country: 'MX' });
    expect((await service.client.post(`/wallets/${wallet.id}/deposit`, { amount: '1' })).status).toBe(200);
    const deposit = { amount: '1' };
    expect((await service.client.postKeyed(`/wallets/${wallet.id}/deposit`, deposit, 'key-1')).status).toBe(
      200,
    );
  });

  test('makes a list over all shards unavailable rather than incomplete', async () => {
    const { ownerId } = await service.client.openWallet();
    expect(await service.client.get(`/wallets?ownerId=${ownerId}`)).toMatchObject(unavailable);
  });

  test('is named by the readiness check with the cause and a remedy, without its address', async () => {
    const { status, body } = await service.client.get('/health/ready');
    expect(status).toBe(503);
    expect(body).toEqual({
      status: 'unavailable',
      shards: [
        { group: 0, member: 0, name: 'global-1', status: 'ready' },
        { group: 1, member: 0, name: 'mexico-1', status: 'ready' },
        {
          group: 2,
          member: 0,
          name: 'third-1',
          status: 'unavailable',
          cause: 'unreachable',
          detail: 'its database server cannot be reached: start the server, or correct jdbc-url',
        },
      ],
    });
    expect((await service.client.get('/health/live')).status).toBe(200);
  });
});

describe('a shard behind a network that fails', () => {
  let service: TestService;
  let proxy: FaultProxy;
  let stop: () => Promise<void>;

  beforeAll(async () => {
    ({ service, proxy, stop } = await startProxiedService({
      mexico: { 'statement-timeout-ms': 1_000, 'acquisition-timeout-ms': 2_000 },
    }));
  });
  afterAll(() => stop());

  test('is unavailable while it refuses connections, and serves again afterwards', async () => {
    const { id } = await service.client.openWallet({ country: 'MX' });
    await proxy.refuse();
    expect(await service.client.get(`/wallets/${id}`)).toMatchObject(unavailable);
    expect(await service.client.post(`/wallets/${id}/deposit`, { amount: '1' })).toMatchObject(unavailable);
    expect((await service.client.get('/health/ready')).body).toMatchObject({
      shards: [{ status: 'ready' }, { name: 'mexico-1', status: 'unavailable' }],
    });
    await service.client.openWallet({ country: 'DE' });

    await proxy.accept();
    expect((await service.client.post(`/wallets/${id}/deposit`, { amount: '1' })).body).toMatchObject({
      version: 2,
    });
    expect((await service.client.get('/health/ready')).status).toBe(200);
  });

  test('allows a truthful answer when only the answer to a commit was lost', async () => {
    const { id } = await service.client.openWallet({ country: 'MX' });
    let cuts = 0;
    proxy.judge = ({ direction, bytes }) => {
      const isWrite = direction === 'to-server' && cuts === 0 && bytes.includes('WalletMoneyDepositedEvent');
      if (isWrite) cuts++;
      return isWrite ? 'forward-and-cut' : 'forward';
    };
    const { status, body } = await service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
    expect(cuts).toBe(1);
    expect({ status, body }).toMatchObject({ status: 200, body: { balance: '101', version: 2 } });
    expect(await service.client.wallet(id)).toMatchObject({ balance: '101', version: 2 });
  });

  test('leaves the outcome unknown, and reports so, if it cannot be found in time', async () => {
    const { id } = await service.client.openWallet({ country: 'MX' });
    let isCut = false;
    proxy.judge = ({ direction, bytes }) => {
      if (isCut) return 'cut';
      isCut = direction === 'to-server' && bytes.includes('WalletMoneyDepositedEvent');
      return isCut ? 'forward-and-cut' : 'forward';
    };
    expect(await service.client.post(`/wallets/${id}/deposit`, { amount: '1' })).toMatchObject(
      problem(504, 'outcome-unknown'),
    );
    expect(isCut).toBe(true);
    proxy.judge = () => 'forward';
    await expect
      .poll(() => rowsOf(service.mexico, 'select version from wallets where id = $1', [id]))
      .toEqual([{ version: '2' }]);
    expect(await service.client.wallet(id)).toMatchObject({ balance: '101', version: 2 });
  });
});

describe('a shard under too much load', () => {
  let service: TestService;

  beforeAll(async () => {
    service = await startTestService({ global: { 'maximum-pool-size': 1, 'acquisition-queue-max': 1 } });
    // Delivery would use the only connection, too.
    await service.service.delivery.stop();
  });
  afterAll(() => stopTestService(service));

  test('is unavailable once its queue is full, and finishes waiting requests', async () => {
    const { id } = await service.client.openWallet();
    await withSession(service.global, async (session) => {
      await session.query('begin');
      await session.query('select from wallets where id = $1 for update', [id]);
      const running = service.client.post(`/wallets/${id}/deposit`, { amount: '1' });
      await expect.poll(() => lockedCount(service.global)).toBe(1);
      const others = await Promise.race([1, 2].map(async () => service.client.get(`/wallets/${id}`)));
      expect(others).toMatchObject(overloaded);
      expect((await service.client.openWallet({ country: 'MX' })).version).toBe(1);
      await session.query('commit');
      expect((await running).status).toBe(200);
    });
    await expect.poll(async () => (await service.client.get(`/wallets/${id}`)).status).toBe(200);
  });
});

describe('an internal error', () => {
  let service: TestService;

  beforeAll(async () => {
    service = await startTestService();
  });
  afterAll(() => stopTestService(service));

  test('leaves neither state nor event, and is answered without its reason', async () => {
    const { id } = await service.client.openWallet();
    await rowsOf(
      service.global,
      `alter table eventlog.events add constraint broken check (event_type <> 'WalletMoneyWithdrawnEvent')`,
    );
    const answer = await service.client.post(`/wallets/${id}/withdraw`, { amount: '12.34' });
    expect(answer).toMatchObject(problem(500, 'internal'));
    expect(JSON.stringify(answer.body)).not.toMatch(/constraint|broken|Exception|events/);
    expect(await service.client.wallet(id)).toMatchObject({ balance: '100', version: 1 });

    const requestId = answer.headers['x-request-id'];
    const line = service.log.find((each) => each.includes('internal error')) ?? '{}';
    expect(JSON.parse(line)).toMatchObject({
      requestId,
      method: 'POST',
      stack: expect.stringContaining('broken'),
    });
    expect(service.log.join('')).not.toMatch(/12\.34/);
  });
});

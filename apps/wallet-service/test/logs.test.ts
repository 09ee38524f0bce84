import { context, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { TracerProvider } from '@opentelemetry/sdk-trace';
import { readFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

import { databaseMessages, logMessages } from '../../../packages/service/src/log/log-messages.js';
import { linesDropped } from '../../../packages/service/src/log/service-logger.js';
import { rowsOf } from './database-session.js';
import { type ProxiedService, startProxiedService } from './start-proxied-service.js';
import { problem } from './wallet-client.js';

trace.setGlobalTracerProvider(new TracerProvider());
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
const traceId = 'a'.repeat(32);

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

let running: ProxiedService;
/** How many lines earlier tests have made. */
let before = 0;
beforeAll(async () => {
  running = await startProxiedService({
    mexico: { 'acquisition-timeout-ms': 1_000 },
    delivery: { 'lease-ms': 2_000 },
  });
});
afterEach(() => (before = running.service.log.length));
afterAll(() => running.stop());

/** The lines of a test of a level that is written by default. */
function lines(): readonly Line[] {
  return running.service.log
    .slice(before)
    .map((line) => JSON.parse(line) as Line)
    .filter(({ level }) => level >= 30);
}

test('a quiet service logs nothing, at no level', async () => {
  const { global, log } = running.service;
  const started = log.length;
  const renewed = async (): Promise<unknown> =>
    (await rowsOf(global, 'select max(until_date)::text as until from eventlog.processes'))[0]?.['until'];
  // Leases are renewed after a third of their time, and the log is polled meanwhile.
  for (let renewal = 0; renewal < 4; renewal++) {
    const last = await renewed();
    await expect.poll(renewed).not.toBe(last);
  }
  expect(log.slice(started)).toEqual([]);
});

test('served requests and refusals that are the caller’s leave no line by default', async () => {
  const { client } = running.service;
  const { id } = await client.openWallet();
  await client.post(`/wallets/${id}/deposit`, { amount: '1' });
  await client.post(`/wallets/${id}/withdraw`, { amount: '1000' });
  await client.post('/wallets', {});
  await client.get('/nothing');
  expect(lines()).toEqual([]);
});

describe('a shard that is away', () => {
  test('has one line for each reason, and one when it is back, however many requests it refuses', async () => {
    const { client } = running.service;
    const { id } = await client.openWallet({ country: 'MX', currency: 'MXN' });
    const deposit = () =>
      client.send(`/wallets/${id}/deposit`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', traceparent: `00-${traceId}-${'b'.repeat(16)}-01` },
        body: '{"amount":"12.34"}',
      });
    await running.proxy.refuse();
    let refusedCount = 0;
    const send = async (count: number): Promise<void> => {
      const answers = await Promise.all(Array.from({ length: count }, deposit));
      refusedCount += answers.filter(({ status }) => status >= 500).length;
    };
    await expect.poll(async () => (await send(1), refusedCount)).toBeGreaterThan(0);
    for (let burst = 0; burst < 10; burst++) await send(30);
    expect(refusedCount).toBeGreaterThanOrEqual(300);
    const refusals = lines().filter(({ msg }) => msg === logMessages.requestsRefused);
    expect(refusals.length).toBeLessThanOrEqual(8);
    expect(new Set(refusals.map(({ reason }) => reason)).size).toBe(refusals.length);
    expect(refusals[0]).toMatchObject({
      level: 40,
      traceId,
      spanId: expect.stringMatching(/^[\da-f]{16}$/) as string,
      shard: 'shard (1, 0)',
      action: 'WalletDepositMoneyAction',
      model: 'Wallet',
      method: 'POST',
      status: 503,
      requestId: expect.any(String) as string,
    });
    // Its leases cannot be renewed.
    await expect
      .poll(() => lines().find(({ msg }) => msg === logMessages.leaseLost))
      .toMatchObject({
        level: 40,
        cause: 'expired',
        shards: ['shard (1, 0)'],
        slots: { 'receive-transfer': expect.arrayContaining([0]) as unknown },
      });

    await running.proxy.accept();
    const served = () => lines().filter(({ msg }) => msg === logMessages.requestsServed);
    await expect.poll(async () => (await send(1), served().length), { interval: 200 }).toBe(1);
    expect(served()).toMatchObject([{ level: 30, shard: 'shard (1, 0)', refusedCount }]);
    await send(1);
    expect(served()).toHaveLength(1);
    await expect
      .poll(() => lines().map(({ level, msg }) => [level, msg]))
      .toContainEqual([30, logMessages.deliveryRecovered]);
    expect(running.service.log.join('')).not.toContain('12.34');
  });
});

test('an internal error names trace, shard, action and model, and quotes no row', async () => {
  const { client, global, log } = running.service;
  const ownerId = '0c9e6679-7425-40de-944b-e07fc1f90ae7';
  await rowsOf(global, `alter table wallets add constraint broken check (owner_id <> '${ownerId}')`);
  const sent = { country: 'DE', ownerId, currency: 'EUR', initialBalance: '56.78' };
  expect(await client.post('/wallets', sent)).toMatchObject(problem(500, 'internal'));
  expect(lines()).toMatchObject([
    {
      level: 50,
      msg: logMessages.internalError,
      status: 500,
      code: 'constraint-violation',
      shard: 'shard (0, 0)',
      action: 'WalletCreateAction',
      model: 'Wallet',
      traceId: expect.any(String) as string,
      stack: expect.stringContaining('broken') as string,
    },
  ]);
  expect(log.join('')).not.toMatch(/56\.78|0c9e6679/);
});

test('what a request carries is in no line', async () => {
  const { client, log } = running.service;
  const headers = {
    authorization: 'Bearer s3cret-token',
    cookie: 's3cret=1',
    'content-type': 'application/json',
    'idempotency-key': 's3cret',
  };
  const wallet = { country: 'DE', ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7', currency: 's3cret' };
  for (const body of [JSON.stringify(wallet), '{"s3cret'])
    await client.send('/wallets?x=s3cret', { method: 'POST', headers, body });
  expect(log.join('')).not.toContain('s3cret');
});

test('the page about the log lists every message', async () => {
  const page = await readFile(new URL('../../../docs/operations/logs.md', import.meta.url), 'utf8');
  const listed = [...page.matchAll(/^\| `([^`]+)` +\| (debug|info|warn|error|fatal) +\|/gm)].map(
    ([, message]) => message,
  );
  const all = [...Object.values(logMessages), ...Object.values(databaseMessages), linesDropped];
  expect(new Set(listed)).toEqual(new Set(all));
  expect(listed).toHaveLength(all.length);
});

import { ActionExecutor, openDatabases, ShardIdentifier, systemClock } from '@framework/core';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';

import type { HttpApi, HttpLog } from '../../src/index.js';
import { TestIssuer, issuer } from '../test-issuer.js';
import { type Shop, shopApi, shopSecurity } from './order-api.js';
import { CancelOrderAction, Order, PlaceOrderAction } from './order.js';
import { serveWithFastify, serveWithHono, serveWithNest } from './servers.js';

const json = { 'content-type': 'application/json' };
const silent: HttpLog = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

function shop(): Shop {
  const databases = openDatabases(memorySharding(ShardIdentifier.of(0, 0)), memory());
  const orders = new MemoryRepository({ model: Order, databases });
  const actions = [new PlaceOrderAction(systemClock), new CancelOrderAction(orders)];
  const executor = new ActionExecutor({ namespace: 'shop', databases, repositories: [orders], actions });
  return { databases, executor, orders };
}

type Send = (path: string, init?: RequestInit) => Promise<Response>;

function clientOf(api: HttpApi): Send {
  return async (path, init) => api.fetch(new Request(`http://shop${path}`, init));
}

function place(send: Send, total: string, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return send('/orders', { method: 'POST', headers: { ...json, ...headers }, body: `{"total":${total}}` });
}

describe('the shop of the guide', () => {
  test('places an order once for each idempotency key, with its total exactly as written', async () => {
    const send = clientOf(shopApi(shop()));
    const total = '12345678901234567.123456789';
    const first = await place(send, total, { 'idempotency-key': 'order-1' });
    const order = (await first.json()) as Record<string, unknown>;
    expect([first.status, first.headers.get('etag'), order['total']]).toEqual([201, '"1"', total]);
    const again = await place(send, `"${total}"`, { 'idempotency-key': 'order-1' });
    expect([again.headers.get('idempotency-replayed'), await again.json()]).toEqual(['true', order]);
    const other = await place(send, '1', { 'idempotency-key': 'order-1' });
    expect([other.status, await other.json()]).toMatchObject([422, { code: 'idempotency-key-reused' }]);
  });

  test('lists orders for clerks only', async () => {
    const composed = shop();
    const placed = await place(clientOf(shopApi(composed)), '1');
    const list = async (roles: readonly string[]): Promise<unknown> => {
      const send = clientOf(shopApi(composed, { principal: { name: 'ada', roles } }));
      return (await send('/orders?limit=1')).json();
    };
    expect(await list(['clerk'])).toEqual({ items: [await placed.json()], next: null });
    expect(await list([])).toMatchObject({ status: 403, code: 'forbidden' });
  });

  test('cancels an order only in a version that the client expects', async () => {
    const send = clientOf(shopApi(shop()));
    const address = (await place(send, '1')).headers.get('location') ?? '';
    const cancel = async (headers: Readonly<Record<string, string>>): Promise<unknown> => {
      const answer = await send(`${address}/cancel`, { method: 'POST', headers });
      return [answer.status, await answer.json()];
    };
    expect(await cancel({ 'if-match': '"2"' })).toMatchObject([412, { code: 'precondition-failed' }]);
    expect(await cancel({ 'if-match': '"1"' })).toMatchObject([200, { state: 'CANCELLED', version: 2 }]);
    expect(await cancel({})).toMatchObject([409, { code: 'order-cancelled' }]);
    const read = await send(address, { headers: { 'if-none-match': '"2"' } });
    expect(read.status).toBe(304);
  });

  test.each([
    ['1e400', 422, 'invalid-total', undefined],
    ['0', 422, 'invalid-total', undefined],
    ['true', 400, 'bad-request', '#/total'],
  ])('refuses the total %s with %i', async (total, status, code, pointer) => {
    const answer = await place(clientOf(shopApi(shop())), total);
    const errors = pointer === undefined ? {} : { errors: [{ pointer }] };
    expect([answer.status, await answer.json()]).toMatchObject([status, { code, ...errors }]);
  });

  test('answers callers with a token, and records their writes', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'guide-'));
    ends.push(() => rm(folder, { recursive: true }));
    const auditFile = join(folder, 'audit.log');
    const tokens = await TestIssuer.create();
    const keys = { load: () => tokens.keys(), refreshMs: 60_000, cooldownMs: 1_000 };
    const security = await shopSecurity(silent, { auditFile, keys });
    ends.push(() => security.audit.close());
    const send = clientOf(shopApi(shop(), security));
    expect((await place(send, '1')).status).toBe(401);
    const token = await tokens.token({ issuer, audience: 'shop', subject: 'ada' });
    const placed = await place(send, '1', { authorization: `Bearer ${token}` });
    expect(placed.status).toBe(201);
    const stranger = await tokens.token({ issuer, audience: 'shop', subject: 'eve' });
    const read = async (bearer: string): Promise<number> => {
      const headers = { authorization: `Bearer ${bearer}` };
      return (await send(placed.headers.get('location') ?? '', { headers })).status;
    };
    expect([await read(token), await read(stranger)]).toEqual([200, 404]);
    const cancel = `${placed.headers.get('location')}/cancel`;
    const refused = await send(cancel, { method: 'POST', headers: { authorization: `Bearer ${stranger}` } });
    expect(await refused.json()).toMatchObject({ status: 404, code: 'order-not-found' });
    const lines = (await readFile(auditFile, 'utf8')).trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { principal: null, request: 'POST /orders', status: 401, code: 'unauthorized' },
      { principal: 'ada', request: 'POST /orders', status: 201, code: null },
      { principal: 'eve', status: 404, code: 'order-not-found' },
    ]);
  });

  test.each<[string, (api: HttpApi) => Promise<string>]>([
    [
      'Hono',
      async (api) => {
        const server = serveWithHono(api, 0);
        ends.push(() => server.close());
        if (!server.listening) await once(server, 'listening');
        return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      },
    ],
    [
      'Fastify',
      async (api) => {
        const app = await serveWithFastify(api, 0);
        ends.push(() => app.close());
        return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
      },
    ],
    [
      'NestJS',
      async (api) => {
        const app = await serveWithNest(api, 0);
        ends.push(() => app.close());
        return `http://127.0.0.1:${new URL(await app.getUrl()).port}`;
      },
    ],
  ])('is served with %s, with its health, document and page', async (_name, serve) => {
    const url = await serve(shopApi(shop()));
    const placed = await place(async (path, init) => fetch(`${url}${path}`, init), '25.50');
    expect([placed.status, await placed.json()]).toMatchObject([201, { total: '25.5' }]);
    const statuses = ['/health/ready', '/openapi.json', '/docs', '/nothing'].map(
      async (path) => (await fetch(`${url}${path}`)).status,
    );
    expect(await Promise.all(statuses)).toEqual([200, 200, 200, 404]);
  });
});

import { ConflictException, Controller, Get, Res } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { once } from 'node:events';
import {
  type IncomingMessage,
  type Server,
  type ServerResponse,
  createServer,
  request as nodeHttpRequest,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';

import { httpPlugin } from '../src/fastify.js';
import { honoApp } from '../src/hono.js';
import type { HttpApi } from '../src/index.js';
import { HttpApiModule, ProblemFilter } from '../src/nest.js';
import { nodeRequest, sendResponse } from '../src/node-request.js';
import { orderApi } from './orders.js';

let end: (() => Promise<unknown>) | undefined;
afterEach(async () => {
  await end?.();
  end = undefined;
});

/** Serves web requests with Node's server. */
async function serveFetch(fetch: (request: Request) => Promise<Response> | Response): Promise<string> {
  const answer = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method = '', url = '', headers } = incoming;
    const hasBody = method !== 'GET' && method !== 'HEAD';
    const request = new Request(`http://localhost${url}`, {
      method,
      headers: headers as Record<string, string>,
      ...(hasBody && { body: Readable.toWeb(incoming), duplex: 'half' }),
    });
    await sendResponse(await fetch(request), response);
  };
  return listening(createServer((incoming, response) => void answer(incoming, response)));
}

async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  end = async () => {
    server.closeAllConnections();
    server.close();
  };
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function serveNest(api: HttpApi, adapter: ExpressAdapter | FastifyAdapter): Promise<string> {
  const app = await NestFactory.create(HttpApiModule.forRoot(api), adapter, { rawBody: true, logger: false });
  app.useGlobalFilters(new ProblemFilter(api));
  await app.listen(0, '127.0.0.1');
  end = () => app.close();
  return (await app.getUrl()).replace('[::1]', '127.0.0.1');
}

/** How an API is served by each framework. */
const bindings: Readonly<Record<string, (api: HttpApi) => Promise<string>>> = {
  'web requests': (api) => serveFetch((request) => api.fetch(request)),
  Hono: (api) => serveFetch((request) => honoApp(api).fetch(request)),
  Fastify: async (api) => {
    const app = Fastify();
    await app.register(httpPlugin(api));
    end = () => app.close();
    return app.listen({ port: 0, host: '127.0.0.1' });
  },
  'NestJS on Express': (api) => serveNest(api, new ExpressAdapter()),
  'NestJS on Fastify': (api) => serveNest(api, new FastifyAdapter()),
};

const json = { 'content-type': 'application/json' };
const long = '123456789012345678901234567890.123456789';

async function answerOf(response: Response) {
  const body = await response.text();
  return {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    body: body === '' ? undefined : (JSON.parse(body) as Record<string, unknown>),
  };
}

describe.each(Object.entries(bindings))('with %s', (name, serve) => {
  async function start() {
    const { api, principals } = orderApi();
    const url = await serve(api);
    const send = async (path: string, init?: RequestInit) => answerOf(await fetch(`${url}${path}`, init));
    const post = (path: string, body: string, headers: Readonly<Record<string, string>> = {}) =>
      send(path, { method: 'POST', headers: { ...json, ...headers }, body });
    return { url, send, post, principals };
  }

  test('an action is executed once for each idempotency key, with numbers exactly as written', async () => {
    const { send, post, principals } = await start();
    const body = `{"total":${long},"pieces":2.0}`;
    const first = await post('/orders', body, { 'idempotency-key': 'order-1' });
    expect(first).toMatchObject({
      status: 201,
      headers: { etag: '"1"', location: expect.stringMatching(/^\/orders\//) },
      body: { total: long, pieces: 2, version: 1 },
    });
    expect(first.headers).not.toHaveProperty('idempotency-replayed');
    const again = await post('/orders', body, { 'idempotency-key': 'order-1' });
    expect(again).toMatchObject({
      status: 201,
      headers: { 'idempotency-replayed': 'true' },
      body: first.body,
    });
    expect(await post('/orders', '{"total":1,"pieces":1}', { 'idempotency-key': 'order-1' })).toMatchObject({
      status: 422,
      body: { code: 'idempotency-key-reused' },
    });
    const path = first.headers['location'] ?? '';
    expect(await post(`${path}/grow`, '{"by":"0.000000001"}')).toMatchObject({
      status: 200,
      headers: { etag: '"2"' },
      body: { total: '123456789012345678901234567890.12345679' },
    });
    expect(await send(path)).toMatchObject({ status: 200, body: { version: 2 } });
    expect(principals).toEqual(['orders', 'orders', 'orders']);
  });

  test('a client that has the version gets no body, and one that expects another version no answer', async () => {
    const { send, post } = await start();
    const { headers } = await post('/orders', '{"total":1,"pieces":1}');
    const path = headers['location'] ?? '';
    expect(await send(path, { headers: { 'if-none-match': '"1"' } })).toMatchObject({ status: 304 });
    expect(await send(path, { headers: { 'if-match': '"7"' } })).toMatchObject({
      status: 412,
      body: { code: 'precondition-failed' },
    });
    const head = await send(path, { method: 'HEAD' });
    expect(head).toMatchObject({ status: 200, headers: { etag: '"1"' }, body: undefined });
    expect(await post('/orders', '{"total":1,"pieces":1}', { prefer: 'return=minimal' })).toMatchObject({
      status: 201,
      headers: { 'preference-applied': 'return=minimal' },
      body: undefined,
    });
  });

  test.each([
    ['a body that is not JSON', '/orders', '{', json, 400, 'bad-request', undefined],
    ['a wrong field', '/orders', '{"total":1,"pieces":"2"}', json, 400, 'bad-request', '#/pieces'],
    ['an unknown field', '/orders', '{"total":1,"pieces":2,"a":1}', json, 400, 'bad-request', '#/a'],
    [
      'a rule of the application',
      '/orders',
      '{"total":1,"pieces":101}',
      json,
      409,
      'out-of-stock',
      undefined,
    ],
    [
      'an id that no shard has',
      '/orders/7c9e6679-7425-40de-944b-e07fc1f90ae7/grow',
      '{"by":1}',
      json,
      404,
      'order-not-found',
      undefined,
    ],
    ['a path that is no id', '/orders/%20/grow', '{"by":1}', json, 400, 'bad-request', 'path/id'],
    ['a long body', '/orders', `{"total":1${' '.repeat(65_536)}}`, json, 413, 'bad-request', undefined],
  ])('%s is answered with a problem document', async (_what, path, body, headers, status, code, pointer) => {
    const { send } = await start();
    const answer = await send(path, { method: 'POST', headers, body });
    expect(answer).toMatchObject({
      status,
      headers: { 'content-type': expect.stringMatching(/^application\/problem\+json/) },
      body: { status, code },
    });
    const { errors = [] } = (answer.body ?? {}) as {
      readonly errors?: readonly { readonly pointer: string }[];
    };
    expect(answer.headers).toHaveProperty('x-request-id');
    expect(errors.map((each) => each.pointer)).toEqual(pointer === undefined ? [] : [pointer]);
  });

  test.runIf(/Fastify|NestJS/.test(name))(
    'a header that may occur once is refused when it occurs twice',
    async () => {
      const { url } = await start();
      const headers = { ...json, 'idempotency-key': ['one', 'two'] };
      const request = nodeHttpRequest(`${url}/orders`, { method: 'POST', headers }).end('{"total":"1"}');
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      const body = JSON.parse((await response.toArray()).join('')) as object;
      expect(response.statusCode).toBe(400);
      expect(body).toMatchObject({ code: 'bad-request', detail: 'idempotency-key occurs more than once' });
    },
  );

  test('a query is validated, and a parameter may occur once', async () => {
    const { send } = await start();
    expect(await send('/orders?state=PLACED')).toMatchObject({
      status: 200,
      body: { items: [], next: null },
    });
    expect(await send('/orders?state=GONE')).toMatchObject({ status: 400, body: { code: 'bad-request' } });
    expect(await send('/orders?state=PLACED&state=PLACED')).toMatchObject({
      status: 400,
      body: { errors: [{ pointer: 'query/state' }] },
    });
  });

  test('health and the OpenAPI document are served', async () => {
    const { send } = await start();
    expect(await send('/health/ready')).toMatchObject({ status: 200, body: { status: 'ready' } });
    expect(await send('/openapi.json')).toMatchObject({
      status: 200,
      body: { openapi: '3.1.0', paths: { '/orders/{id}': { get: { summary: 'Read an order' } } } },
    });
  });

  test('an address at which there is nothing has a problem document', async () => {
    const { send } = await start();
    expect(await send('/nowhere')).toMatchObject({
      status: 404,
      headers: { 'content-type': expect.stringMatching(/^application\/problem\+json/) },
      body: { code: 'not-found' },
    });
  });

  test.skipIf(name.startsWith('NestJS'))(
    'a method that an address does not support is refused with a list',
    async () => {
      const { send } = await start();
      expect(await send('/orders', { method: 'DELETE' })).toMatchObject({
        status: 405,
        headers: { allow: 'POST, GET, HEAD, OPTIONS' },
      });
    },
  );
});

test('a hook of Fastify applies to the routes, and what it throws has a problem document', async () => {
  const { api } = orderApi();
  const app = Fastify();
  app.addHook('onRequest', async ({ headers }) => {
    if (headers['x-tenant'] === undefined) throw new Error('secret');
  });
  await app.register(httpPlugin(api), { prefix: '/v1' });
  expect((await app.inject('/v1/orders?state=PLACED')).json()).toMatchObject({
    status: 500,
    code: 'internal',
  });
  const answer = await app.inject({ url: '/v1/orders?state=PLACED', headers: { 'x-tenant': 'a' } });
  expect([answer.statusCode, answer.json()]).toEqual([200, { items: [], next: null }]);
  await app.close();
});

test('a guard of NestJS applies to the routes, and other controllers are served beside them', async () => {
  const { api } = orderApi();
  class OwnController {
    hello(): string {
      return 'hello';
    }
  }
  const descriptor = Object.getOwnPropertyDescriptor(OwnController.prototype, 'hello') ?? {};
  Get('hello')(OwnController.prototype, 'hello', descriptor);
  Controller()(OwnController);
  const appModule = {
    module: HttpApiModule,
    imports: [HttpApiModule.forRoot(api, { prefix: 'v1' })],
    controllers: [OwnController],
  };
  const app = await NestFactory.create(appModule, new ExpressAdapter(), { rawBody: true, logger: false });
  app.useGlobalFilters(new ProblemFilter(api));
  app.useGlobalGuards({
    canActivate: (context) =>
      context.switchToHttp().getRequest<{ headers: Record<string, string> }>().headers['x-tenant'] === 'a',
  });
  await app.listen(0, '127.0.0.1');
  end = () => app.close();
  const url = await app.getUrl();
  const refused = await answerOf(await fetch(`${url}/v1/orders?state=PLACED`));
  expect(refused).toMatchObject({ status: 403, body: { code: 'forbidden' } });
  const headers = { 'x-tenant': 'a' };
  expect((await fetch(`${url}/v1/orders?state=PLACED`, { headers })).status).toBe(200);
  expect(await (await fetch(`${url}/hello`, { headers })).text()).toBe('hello');
});

test('exceptions of NestJS keep their statuses, and one after the answer has begun ends the connection', async () => {
  const { api } = orderApi();
  class OwnController {
    conflict(): never {
      throw new ConflictException('It is taken');
    }
    late(response: ServerResponse): never {
      response.write('a');
      throw new Error('too late');
    }
  }
  const { prototype } = OwnController;
  for (const name of ['conflict', 'late'] as const)
    Get(name)(prototype, name, Object.getOwnPropertyDescriptor(prototype, name) ?? {});
  Res()(prototype, 'late', 0);
  Controller()(OwnController);
  const appModule = { module: HttpApiModule, imports: [], controllers: [OwnController] };
  const app = await NestFactory.create(appModule, new ExpressAdapter(), { rawBody: true, logger: false });
  app.useGlobalFilters(new ProblemFilter(api));
  await app.listen(0, '127.0.0.1');
  end = () => app.close();
  const url = await app.getUrl();
  expect(await answerOf(await fetch(`${url}/conflict`))).toMatchObject({
    status: 409,
    body: { code: 'conflict', detail: 'It is taken' },
  });
  await expect(fetch(`${url}/late`).then((response) => response.text())).rejects.toThrow(
    /terminated|fetch failed/,
  );
  expect((await fetch(`${url}/conflict`)).status).toBe(409);
});

test.each([401, 403, 429, 503])(
  'a hook of Fastify that throws the status %d is answered with it',
  async (status) => {
    const app = Fastify();
    app.addHook('onRequest', async () => {
      throw Object.assign(new Error('No'), { statusCode: status });
    });
    await app.register(httpPlugin(orderApi().api), { prefix: '/:org' });
    expect((await app.inject('/a/orders?state=PLACED')).json()).toMatchObject({ status });
    await app.close();
  },
);

test('a prefix of Fastify may have a parameter', async () => {
  const app = Fastify();
  await app.register(httpPlugin(orderApi().api), { prefix: '/:org' });
  expect((await app.inject('/a/orders?state=PLACED')).json()).toEqual({ items: [], next: null });
  await app.close();
});

test('NestJS that has parsed the body without keeping it is told to keep it', async () => {
  const { api } = orderApi();
  const app = await NestFactory.create(HttpApiModule.forRoot(api), new ExpressAdapter(), { logger: false });
  const errors: unknown[] = [];
  app.useGlobalFilters({
    catch: (error: unknown, host) => {
      errors.push(error);
      host.switchToHttp().getResponse<ServerResponse>().writeHead(500).end();
    },
  });
  await app.listen(0, '127.0.0.1');
  end = () => app.close();
  const response = await fetch(`${await app.getUrl()}/orders`, {
    method: 'POST',
    headers: json,
    body: '{"total":1,"pieces":1}',
  });
  expect(response.status).toBe(500);
  expect(errors).toMatchObject([{ message: expect.stringContaining('rawBody: true') }]);
});

test('the signal of a request is aborted when its client leaves, and not when it has its answer', async () => {
  const signals: AbortSignal[] = [];
  const server = createServer((incoming, response) => {
    const { signal } = nodeRequest(incoming, { url: '/', params: {}, address: '', response });
    signals.push(signal());
    if (incoming.url === '/quick') response.end('done');
  });
  const url = await listening(server);
  await (await fetch(`${url}/quick`)).text();
  const leaving = nodeHttpRequest(`${url}/slow`).end();
  leaving.on('error', () => undefined);
  await expect.poll(() => signals.length).toBe(2);
  leaving.destroy();
  await expect.poll(() => signals.map(({ aborted }) => aborted)).toEqual([false, true]);
});

test('middleware of Hono applies to the routes', async () => {
  const app = new Hono();
  const seen: string[] = [];
  app.use(async ({ req }, next) => {
    seen.push(req.path);
    await next();
  });
  const response = await honoApp(orderApi().api, { app: app as never }).request('/orders?state=PLACED');
  expect([response.status, seen]).toEqual([200, ['/orders']]);
});

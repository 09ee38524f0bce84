import { Action, FrameworkError, ShardUnavailableError } from '@framework/core';
import { describe, expect, test, vi } from 'vitest';
import * as z from 'zod';

import { clientOf, shard, testApi } from '../test/test-api.js';
import {
  type AuditEntry,
  type HttpApiOptions,
  ProblemError,
  RequestLog,
  type Route,
  ShardCapacity,
  route,
} from './index.js';

type Execute = (...call: readonly unknown[]) => Promise<never>;

const answer = z.object({});

const renameParams = z.object({});

/** An action that is only named. */
class RenameAction extends Action<object> {
  static readonly params = renameParams;

  protected async perform(): Promise<void> {}
}

const read = route.get('/things', { summary: 'Read', answer }, () => ({ body: {} }));
const change = route.post(
  '/things',
  {
    summary: 'Change',
    body: z.strictObject({ name: z.string() }),
    action: RenameAction,
    answer,
  },
  async ({ execute }) => {
    await execute(RenameAction, {});
    return { body: {} };
  },
);
const post = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"name":"a"}' };

function serviceOf(options: Partial<HttpApiOptions> = {}): ReturnType<typeof clientOf> {
  return clientOf(
    testApi({ routes: [read, change], executor: { execute: async () => ({}) as never }, ...options }),
  );
}

describe('without authentication', () => {
  test('the principal of a request is that of the service', async () => {
    const execute = vi.fn<Execute>(async () => ({}) as never);
    await serviceOf({ executor: { execute } })('/things', post);
    await serviceOf({ executor: { execute }, principal: { name: 'web' } })('/things', post);
    expect(execute.mock.calls.map(([principal]) => principal)).toEqual([{ name: 'orders' }, { name: 'web' }]);
  });
});

describe('with authentication', () => {
  const authentication = {
    principalOf: async (headers: Headers) => {
      const name = headers.get('authorization');
      if (name !== null) return { name };
      throw new ProblemError('unauthorized', 'secret', { headers: { 'www-authenticate': 'Bearer' } });
    },
  };

  test.each(['/things', '/things/unknown'])(
    'a request without a token learns nothing about %s',
    async (path) => {
      const response = await serviceOf({ authentication })(path);
      expect([response.status, response.headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
      expect(await response.text()).not.toContain('secret');
    },
  );

  test('paths that are public, and paths at which nothing is private, need no token', async () => {
    const live = route.get('/live', { summary: 'Live', answer, isPublic: true }, () => ({ body: {} }));
    const send = serviceOf({ authentication, routes: [read, live] });
    const statuses = await Promise.all(
      ['/live', '/openapi.json', '/nowhere'].map(async (path) => (await send(path)).status),
    );
    expect(statuses).toEqual([200, 200, 404]);
  });

  test('every path of a private service needs a token, apart from the list of methods', async () => {
    const send = serviceOf({ authentication, isPrivate: true });
    const statuses = await Promise.all(
      ['/openapi.json', '/nowhere'].map(async (path) => (await send(path)).status),
    );
    expect(statuses).toEqual([401, 401]);
    const options = await send('/things', { method: 'OPTIONS' });
    expect([options.status, options.headers.get('allow')]).toEqual([204, 'GET, HEAD, POST, OPTIONS']);
    expect((await send('/openapi.json', { headers: { authorization: 'ann' } })).status).toBe(200);
  });

  test('the body of a request without a token is not read', async () => {
    const pull = vi.fn<() => void>();
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    const request = new Request('http://localhost/things', { ...post, body, duplex: 'half' });
    const response = await testApi({ routes: [change], authentication }).fetch(request);
    expect([response.status, pull.mock.calls.length]).toEqual([401, 0]);
  });

  test('a principal that sends too many requests is refused, and its connection is paused', async () => {
    const refusal = Object.assign(new ProblemError('too-many-requests', 'Slower'), { retryAfterMs: 1_500 });
    const asked: unknown[] = [];
    const rates = {
      refusal: async (...subject: readonly unknown[]) => {
        asked.push(subject);
        return subject[0] === 'principal' ? refusal : undefined;
      },
    };
    const api = testApi({ routes: [read], authentication, rates });
    const pause = vi.fn<(ms: number) => void>();
    const response = await api.answer(
      api.endpoints.find(({ address }) => address === '/things')!,
      {
        method: 'GET',
        path: '/things',
        headers: new Headers({ authorization: 'ann' }),
        params: {},
        queries: () => ({}),
        body: { isAnnounced: false, read: async () => new Uint8Array() },
        client: { address: '192.0.2.7' },
        signal: () => new AbortController().signal,
        pause,
      },
    );
    expect([response.status, response.headers.get('retry-after')]).toEqual([429, '1']);
    expect(pause).toHaveBeenCalledWith(1_500);
    expect(asked).toEqual([
      ['address', '192.0.2.7'],
      ['principal', 'ann'],
    ]);
  });
});

describe('a write', () => {
  test('is recorded with its outcome, whether it succeeds or not', async () => {
    const entries: AuditEntry[] = [];
    const audit = {
      record: async (attempt: () => Promise<AuditEntry>) => void entries.push(await attempt()),
    };
    const send = serviceOf({ audit });
    await send('/things', { ...post, headers: { ...post.headers, 'idempotency-key': 'k' } });
    await send('/things', { ...post, body: '{}' });
    await send('/things/unknown', post);
    await send('/things');
    expect(entries).toMatchObject([
      { request: 'POST /things', status: 200, code: null, input: { name: 'a' }, idempotencyKey: 'k' },
      { request: 'POST /things', status: 400, code: 'bad-request', input: null, idempotencyKey: null },
      { request: 'POST /things/unknown', status: 404, code: 'not-found', principal: 'orders' },
    ]);
  });

  test('is not made while it cannot be recorded', async () => {
    const execute = vi.fn<Execute>(async () => ({}) as never);
    const audit = { record: () => Promise.reject(new ProblemError('audit-unavailable', 'The disk is full')) };
    const response = await serviceOf({ audit, executor: { execute } })('/things', post);
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1']);
    expect(execute).not.toHaveBeenCalled();
  });

  test('without an action refuses an idempotency key, which nothing would keep', async () => {
    const plain = route.post('/things', { summary: 'Change', answer }, () => ({ body: {} }));
    const response = await serviceOf({ routes: [plain] })('/things', {
      method: 'POST',
      headers: { 'idempotency-key': 'k' },
    });
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { errors: [{ pointer: 'header/Idempotency-Key' }] },
    ]);
  });

  test('of a guard that refuses is refused before its body is read', async () => {
    const guarded: Route = {
      ...change,
      guard: ({ name }) => {
        if (name !== 'ann') throw new ProblemError('forbidden', 'Only Ann may');
      },
    };
    const send = serviceOf({ routes: [guarded] });
    expect((await send('/things', { ...post, body: 'not json' })).status).toBe(403);
  });
});

test('an action of a route without an executor is a mistake of the application, and says so', async () => {
  const lines: string[] = [];
  const log = { debug: () => undefined, info: () => undefined, warn: () => undefined };
  const error = (fields: object): void => void lines.push(JSON.stringify(fields));
  const send = clientOf(testApi({ routes: [change], log: new RequestLog({ ...log, error }) }));
  expect((await send('/things', post)).status).toBe(500);
  expect(lines.join('\n')).toContain('has no executor: pass one');
});

test('a shard with as many requests as it may have refuses another one, and serves it later', async () => {
  const slow = Promise.withResolvers<{ readonly body: Record<string, never> }>();
  const held = route.get('/held', { summary: 'Held', answer, shards: () => [shard] }, () => slow.promise);
  const send = serviceOf({ routes: [held], capacity: new ShardCapacity(1) });
  const first = send('/held');
  await vi.waitFor(async () => {
    const response = await send('/held');
    expect([response.status, await response.json()]).toMatchObject([503, { code: 'shard-unavailable' }]);
  });
  slow.resolve({ body: {} });
  expect([(await first).status, (await send('/held')).status]).toEqual([200, 200]);
});

test('a request has one id in its answer, in its problem and in its log, and no line has its body', async () => {
  const lines: { readonly requestId?: string }[] = [];
  const write = (fields: object): void => void lines.push(fields);
  const failing = route.post(
    '/things',
    { summary: 'Change', body: z.strictObject({ name: z.string() }), answer },
    () => {
      throw new ShardUnavailableError(shard, 'the server is away');
    },
  );
  const log = new RequestLog({ debug: write, info: write, warn: write, error: write });
  const response = await clientOf(testApi({ routes: [failing], log }))('/things', {
    ...post,
    body: '{"name":"canary"}',
  });
  const id = response.headers.get('x-request-id');
  const { instance } = (await response.json()) as { readonly instance: string };
  expect(instance).toBe(`urn:uuid:${id}`);
  expect(new Set(lines.map(({ requestId }) => requestId))).toEqual(new Set([id]));
  expect(JSON.stringify(lines)).not.toContain('canary');
});

test('a handler may make its answer itself, with the headers that every answer has', async () => {
  const file = route.get(
    '/file',
    { summary: 'File', answer: z.string(), mediaType: 'text/csv' },
    () => new Response('a,b', { headers: { 'content-type': 'text/csv', 'cache-control': 'max-age=60' } }),
  );
  const response = await serviceOf({ routes: [file] })('/file');
  expect(Object.fromEntries(response.headers)).toMatchObject({
    'content-type': 'text/csv',
    'cache-control': 'max-age=60',
    'x-content-type-options': 'nosniff',
    'x-request-id': expect.any(String),
  });
  expect(await response.text()).toBe('a,b');
});

test('an error of another copy of the framework has the problem of its code', async () => {
  const stale = Object.assign(new Error('for operators'), { code: 'stale-record', retryable: true });
  Object.defineProperty(stale, Symbol.for('@framework/core/exception'), { value: true });
  expect(FrameworkError.is(stale)).toBe(true);
  const send = serviceOf({ executor: { execute: () => Promise.reject(stale) } });
  expect((await send('/things', post)).status).toBe(409);
});

test.each([
  '/orders:search',
  '/orders/{id}:cancel',
  '/files/{name}.json',
  '/r/{y}-{m}-{d}',
  '/files/*',
  'orders',
  '/p/{order-id}',
])('the address %s is refused, because routers understand it in different ways', (address) => {
  const odd = route.get(address, { summary: 'Odd', answer }, () => ({ body: {} }));
  expect(() => testApi({ routes: [odd] })).toThrow('must consist of segments');
});

test('an address with a parameter twice is refused by its name', () => {
  const twice = route.get('/a/{id}/b/{id}', { summary: 'x', answer: z.object({}) }, async () => ({
    body: {},
  }));
  expect(() => testApi({ routes: [twice] })).toThrow('/a/{id}/b/{id} of a route has a parameter twice');
});

const named = (address: string) =>
  route.get(address, { summary: address, answer: z.string() }, () => ({ body: address }));

test('two routes of one address are refused, and a literal segment comes before a parameter', async () => {
  expect(() => testApi({ routes: [read, read] })).toThrow('Two routes have the address get /things');
  const send = serviceOf({ routes: [named('/orders/{id}'), named('/orders/latest')] });

  expect(await (await send('/orders/latest')).json()).toBe('/orders/latest');
  expect(await (await send('/orders/1')).json()).toBe('/orders/{id}');
});

test('a second action under one idempotency key is not executed', async () => {
  const execute = vi.fn<Execute>(async () => ({}) as never);
  const twice = route.post('/things', { summary: 'Twice', action: RenameAction, answer }, async (call) => {
    await call.execute(RenameAction, {});
    await call.execute(RenameAction, {});
    return { body: {} };
  });
  const send = serviceOf({ routes: [twice], executor: { execute } });
  expect((await send('/things', { method: 'POST' })).status).toBe(200);
  expect(execute).toHaveBeenCalledTimes(2);
  const keyed = { method: 'POST', headers: { 'idempotency-key': 'k' } };
  expect([(await send('/things', keyed)).status, execute.mock.calls.length]).toEqual([500, 3]);
});

test.each([z.unknown(), z.coerce.string(), z.looseObject({}), z.object({ source: z.string() }), z.number()])(
  'a number that a binary float would change reaches no handler without a decimal field: %#',
  async (name) => {
    const echo = route.post(
      '/echo',
      { summary: 'Echo', body: z.object({ name }), answer: z.unknown() },
      (call) => ({
        body: call.body,
      }),
    );
    const send = serviceOf({ routes: [echo] });
    const response = await send('/echo', { ...post, body: '{"name":12345678901234567890123}' });
    expect([response.status, await response.json()]).toMatchObject([400, { code: 'bad-request' }]);
  },
);

const fail = (): never => {
  throw new Error('the disk is full');
};

test('a log that fails changes no answer', async () => {
  const send = serviceOf({ log: { answered: fail, problem: fail } });
  expect([(await send('/things')).status, (await send('/nowhere')).status]).toEqual([200, 404]);
});

test('an answer whose status has no body has none', async () => {
  const place = route.post('/things', { summary: 'Place', answer }, () => ({ status: 204, body: {} }));
  const response = await serviceOf({ routes: [place] })('/things', { method: 'POST' });
  expect([response.status, await response.text()]).toEqual([204, '']);
});

test.each([
  ['/things/ü', '/things/%C3%BC'],
  ['/things/%C3%BC%2f1', '/things/%C3%BC%2f1'],
  ['/things/100%', '/things/100%25'],
  ["/things/a b?name=(x)&to='y'#[z]", "/things/a%20b?name=(x)&to='y'#[z]"],
  ['/things/\uD800\r\n', '/things/%EF%BF%BD%0D%0A'],
])('the address %j is encoded once in both headers', async (address, sent) => {
  const settings = { summary: 'Place', versioned: true, answer };
  const reply = { location: address, resource: { address, version: 1 }, body: {} };
  const place = route.post('/things', settings, () => reply);
  const { status, headers } = await serviceOf({ routes: [place] })('/things', { method: 'POST' });
  expect([status, headers.get('location'), headers.get('content-location')]).toEqual([200, sent, sent]);
});

test('a route whose schema cannot be described is named when the document is made', () => {
  const odd = route.get('/odd', { summary: 'Odd', answer: z.map(z.string(), z.string()) }, () => ({
    body: new Map(),
  }));
  expect(() => testApi({ routes: [read, odd] }).openApi()).toThrow('GET /odd cannot be described');
});

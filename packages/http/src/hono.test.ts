import { expect, test, vi } from 'vitest';
import * as z from 'zod';

import { clientOf, testApi } from '../test/test-api.js';
import { honoApp } from './hono.js';
import { InvalidRequestError, route } from './index.js';
import type { CorsSettings } from './security/http-settings.js';

const origin = 'https://app.example';

test('every answer forbids browsers to guess, frame and load', async () => {
  const headers = await headersOf(clientWith({}), '/orders/1');
  expect(headers).toMatchObject({
    'content-security-policy': "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  });
  expect(headers).not.toHaveProperty('access-control-allow-origin');
});

test.each([
  [true, 'max-age=31536000'],
  [false, undefined],
])('the header for HTTPS only is sent over TLS alone: %s', async (encrypted, expected) => {
  const headers = await headersOf(clientWith({ encrypted }), '/health/live');
  expect(headers['strict-transport-security']).toBe(expected);
});

test.each([
  ['/orders', 'no-store'],
  ['/orders/1', 'no-store'],
  ['/orders/unknown/path', 'no-store'],
  ['/orders/refused', 'no-store'],
  ['/health/live', undefined],
])('answers to principals are not stored: %s', async (path, expected) => {
  expect((await headersOf(clientWith({}), path))['cache-control']).toBe(expected);
});

test('the page of documents may load only what the service serves', async () => {
  const app = clientWith({ docs: true });
  const { 'content-security-policy': policy = '', ...others } = await headersOf(app, '/docs');
  expect(others).toMatchObject({ 'cross-origin-opener-policy': 'same-origin' });
  expect(policy).toContain("script-src 'self';");
  expect(policy).not.toMatch(/https?:|\*|unsafe-eval|script-src[^;]*unsafe/);
  const page = await (await app('/docs')).text();
  const sources = [...page.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, source = '']) => source);
  expect(sources).toHaveLength(4);
  expect(sources.every((source) => source.startsWith('/docs/'))).toBe(true);
  expect(page).not.toMatch(/<script>|<style|\son\w+=/);
});

test('a script of a named origin may send requests and read the answers', async () => {
  const app = clientWith({ cors: { origins: [origin] } });
  const preflight = await app('/orders', {
    method: 'OPTIONS',
    headers: { origin, 'access-control-request-method': 'POST' },
  });
  expect([preflight.status, Object.fromEntries(preflight.headers)]).toMatchObject([
    204,
    {
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'HEAD,GET,POST',
      'access-control-allow-headers': expect.stringMatching(/authorization.*idempotency-key/i),
    },
  ]);
  const answer = await headersOf(app, '/orders/1', { origin });
  expect(answer).toMatchObject({
    'access-control-allow-origin': origin,
    'access-control-expose-headers': expect.stringContaining('location'),
    'cache-control': 'no-store',
    vary: 'Origin',
  });
  expect(answer).not.toHaveProperty('access-control-allow-credentials');
});

test.each(['https://other.example', 'null', `${origin}.evil.example`])(
  'a script of another origin gets no permission: %s',
  async (other) => {
    const app = clientWith({ cors: { origins: [origin], credentials: true } });
    const headers = await headersOf(app, '/orders/1', { origin: other });
    expect(headers).not.toHaveProperty('access-control-allow-origin');
  },
);

type Client = ReturnType<typeof clientOf>;

function clientWith({
  encrypted = false,
  docs = false,
  cors,
}: {
  readonly encrypted?: boolean;
  readonly docs?: boolean;
  readonly cors?: Partial<CorsSettings>;
}): Client {
  const answer = z.object({});
  const routes = [
    route.get('/orders', { summary: 'List', answer }, () => ({ body: {} })),
    route.post('/orders', { summary: 'Place', answer }, () => ({ body: {} })),
    route.get('/orders/{id}', { summary: 'Read', answer, path: z.object({ id: z.string() }) }, ({ path }) => {
      if (path.id === 'refused') throw new InvalidRequestError('bad-request', 'refused');
      return { body: {} };
    }),
  ];
  routes.push(route.get('/health/live', { summary: 'Live', answer, isPublic: true }, () => ({ body: {} })));
  const allowed = cors && { origins: [], credentials: false, ...cors };
  return clientOf(testApi({ routes, encrypted, docs }), { cors: allowed });
}

async function headersOf(
  send: Client,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Readonly<Record<string, string>>> {
  return Object.fromEntries((await send(path, { headers })).headers);
}

test('scripts of other origins may use exactly the methods and headers of the API', async () => {
  const app = clientWith({ cors: { origins: [origin], credentials: true } });
  const preflight = await app('/orders', {
    method: 'OPTIONS',
    headers: { origin, 'access-control-request-method': 'POST' },
  });
  const { headers } = preflight;
  expect(listOf(headers.get('access-control-allow-methods'))).toEqual(['get', 'head', 'post']);
  expect(listOf(headers.get('access-control-allow-headers'))).toEqual([
    'authorization',
    'content-type',
    'idempotency-key',
    'if-match',
    'if-none-match',
    'prefer',
  ]);
  expect(headers.get('access-control-max-age')).toBe('600');
  expect(headers.get('access-control-allow-credentials')).toBe('true');
  const answer = await headersOf(app, '/orders/1', { origin });
  expect(listOf(answer['access-control-expose-headers'] ?? null)).toEqual([
    'etag',
    'idempotency-replayed',
    'location',
    'retry-after',
    'www-authenticate',
    'x-request-id',
  ]);
});

test('a script of any origin may send requests if all are named, without credentials', async () => {
  const headers = await headersOf(clientWith({ cors: { origins: ['*'] } }), '/orders/1', { origin });
  expect(headers['access-control-allow-origin']).toBe('*');
  expect(headers).not.toHaveProperty('access-control-allow-credentials');
});

test('the stream of an answer to HEAD is cancelled, although that fails', async () => {
  const cancel = vi.fn<() => Promise<void>>(() => Promise.reject(new Error('no')));
  const settings = { summary: 'Export', mediaType: 'text/csv', answer: z.string() };
  const stream = route.get('/export', settings, () => new Response(new ReadableStream({ cancel })));
  const answer = await honoApp(testApi({ routes: [stream] })).request('/export', { method: 'HEAD' });
  expect([answer.status, await answer.text()]).toEqual([200, '']);
  expect(cancel).toHaveBeenCalledTimes(1);
});

/** The entries of a header, in lower case and in order. */
function listOf(text: string | null): readonly string[] {
  return (text ?? '')
    .split(',')
    .map((each) => each.trim().toLowerCase())
    .toSorted();
}

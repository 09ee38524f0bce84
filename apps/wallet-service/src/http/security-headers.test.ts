import { OpenAPIHono } from '@hono/zod-openapi';
import { expect, test } from 'vitest';

import { ConfigurationError } from '@framework/core';

import { docsRoutes } from './docs-routes.js';
import { parseHttpSettings } from './http-settings.js';
import { InvalidRequestError } from './parse-shape.js';
import { problemOf, problemResponse } from './problem-of.js';
import { securityHeaders } from './security-headers.js';
import type { WalletApp, WalletEnv } from './wallet-app-env.js';

const origin = 'https://app.example';

test('every answer forbids browsers to guess, frame and load', async () => {
  const headers = await headersOf(appWith({}), '/wallets/1');
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
])('browsers are told to stay with TLS only if it is spoken: %s', async (encrypted, expected) => {
  const headers = await headersOf(appWith({ encrypted }), '/health/live');
  expect(headers['strict-transport-security']).toBe(expected);
});

test.each([
  ['/wallets', 'no-store'],
  ['/wallets/1', 'no-store'],
  ['/transfers/1', 'no-store'],
  ['/wallets/unknown/path', 'no-store'],
  ['/wallets/refused', 'no-store'],
  ['/health/live', undefined],
])('answers about money are not stored: %s', async (path, expected) => {
  expect((await headersOf(appWith({}), path))['cache-control']).toBe(expected);
});

test('the page of documents may load only what the service serves', async () => {
  const app = appWith({});
  docsRoutes(app);
  const { 'content-security-policy': policy = '', ...others } = await headersOf(app, '/docs');
  expect(others).toMatchObject({ 'cross-origin-opener-policy': 'same-origin' });
  expect(policy).toContain("script-src 'self';");
  expect(policy).not.toMatch(/https?:|\*|unsafe-eval|script-src[^;]*unsafe/);
  const page = await (await app.request('/docs')).text();
  const sources = [...page.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, source = '']) => source);
  expect(sources).toHaveLength(4);
  expect(sources.every((source) => source.startsWith('/docs/'))).toBe(true);
  expect(page).not.toMatch(/<script>|<style|\son\w+=/);
});

test('a script of a named origin may send requests and read the answers', async () => {
  const app = appWith({ cors: { origins: [origin] } });
  const preflight = await app.request('/wallets', {
    method: 'OPTIONS',
    headers: { origin, 'access-control-request-method': 'POST' },
  });
  expect([preflight.status, Object.fromEntries(preflight.headers)]).toMatchObject([
    204,
    {
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'GET,HEAD,POST',
      'access-control-allow-headers': expect.stringMatching(/authorization.*idempotency-key/i),
    },
  ]);
  const answer = await headersOf(app, '/wallets/1', { origin });
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
    const app = appWith({ cors: { origins: [origin], credentials: true } });
    const headers = await headersOf(app, '/wallets/1', { origin: other });
    expect(headers).not.toHaveProperty('access-control-allow-origin');
  },
);

test.each([
  [{ origins: ['*'], credentials: true }, 'framework.http.cors'],
  [{ origins: [`${origin}/path`] }, 'framework.http.cors.origins[0]'],
  [{ origins: ['app.example'] }, 'framework.http.cors.origins[0]'],
  [{ origins: [] }, 'framework.http.cors.origins'],
  [{ origin: [origin] }, 'framework.http.cors.origin'],
])('a section about origins is refused as %j', (cors, path) => {
  let failure: unknown;
  try {
    parseHttpSettings({ cors });
  } catch (error) {
    failure = error;
  }
  expect(failure).toBeInstanceOf(ConfigurationError);
  expect((failure as ConfigurationError).faults.map((fault) => fault.path)).toContain(path);
});

function appWith({
  encrypted = false,
  cors,
}: {
  readonly encrypted?: boolean;
  readonly cors?: Readonly<Record<string, unknown>>;
}): WalletApp {
  const app = new OpenAPIHono<WalletEnv>();
  securityHeaders(app, { encrypted, ...parseHttpSettings(cors === undefined ? {} : { cors }) });
  for (const path of ['/wallets', '/wallets/:id', '/transfers/:id', '/health/live'])
    app.get(path, (context) => {
      if (context.req.param('id') === 'refused') throw new InvalidRequestError('bad-request', 'refused');
      return context.json({});
    });
  app.onError((error) => problemResponse(problemOf(error), 'id'));
  return app;
}

async function headersOf(
  app: WalletApp,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<Readonly<Record<string, string>>> {
  return Object.fromEntries((await app.request(path, { headers })).headers);
}

test('scripts of other origins may use exactly the methods and headers of the API', async () => {
  const app = appWith({ cors: { origins: [origin], credentials: true } });
  const preflight = await app.request('/wallets', {
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
  const answer = await headersOf(app, '/wallets/1', { origin });
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
  const headers = await headersOf(appWith({ cors: { origins: ['*'] } }), '/wallets/1', { origin });
  expect(headers['access-control-allow-origin']).toBe('*');
  expect(headers).not.toHaveProperty('access-control-allow-credentials');
});

/** The entries of a header, in lower case and in order. */
function listOf(text: string | null): readonly string[] {
  return (text ?? '')
    .split(',')
    .map((each) => each.trim().toLowerCase())
    .toSorted();
}

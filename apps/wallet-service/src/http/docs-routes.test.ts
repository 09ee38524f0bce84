import { OpenAPIHono } from '@hono/zod-openapi';
import type * as files from 'node:fs/promises';
import { readFile } from 'node:fs/promises';
import { expect, test, vi } from 'vitest';

import { docsRoutes, openapiRoute } from './docs-routes.js';
import type { WalletEnv } from './wallet-app-env.js';

vi.mock('node:fs/promises', async (importActual) => {
  const actual = await importActual<typeof files>();
  return { ...actual, readFile: vi.fn<typeof readFile>(actual.readFile) };
});

test('the OpenAPI document is generated once, however often it is read', async () => {
  const app = new OpenAPIHono<WalletEnv>();
  const make = vi.spyOn(app, 'getOpenAPI31Document');
  openapiRoute(app, { needsTokens: false });
  const texts = [];
  for (let count = 0; count < 3; count += 1) texts.push(await (await app.request('/openapi.json')).text());
  expect(make).toHaveBeenCalledTimes(1);
  expect(new Set(texts).size).toBe(1);
});

test('a file of the page is read once, however many requests ask for it', async () => {
  const app = new OpenAPIHono<WalletEnv>();
  app.onError((_error, context) => context.text('', 500));
  docsRoutes(app);
  const read = vi.mocked(readFile).mockRejectedValueOnce(new Error('too many open files'));
  const lengths = async (): Promise<readonly number[]> =>
    Promise.all([1, 2, 3].map(async () => (await (await app.request('/docs/swagger-ui.css')).text()).length));
  expect((await app.request('/docs/swagger-ui.css')).status).toBe(500);
  const [length, ...others] = [...(await lengths()), ...(await lengths())];
  expect(length).toBeGreaterThan(100_000);
  expect(new Set(others)).toEqual(new Set([length]));
  // The first read fails, and the failure is not cached.
  expect(read).toHaveBeenCalledTimes(2);
});

test.each(['/docs', '/docs/start.js', '/docs/swagger-ui.css', '/docs/swagger-ui-bundle.js'])(
  'a text of the page says how it is encoded: %s',
  async (path) => {
    const app = new OpenAPIHono<WalletEnv>();
    docsRoutes(app);
    expect((await app.request(path)).headers.get('content-type')).toMatch(/^text\/\w+; charset=utf-8$/i);
  },
);

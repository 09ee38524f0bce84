import { OpenAPIHono } from '@hono/zod-openapi';
import { expect, test, vi } from 'vitest';
import type { WalletEnv } from '../wallet-app-env.js';
import { openapiRoute } from './docs-routes.js';

test('the OpenAPI document is made once, however often it is read', async () => {
  const app = new OpenAPIHono<WalletEnv>();
  const make = vi.spyOn(app, 'getOpenAPI31Document');
  openapiRoute(app);
  const texts = [];
  for (let count = 0; count < 3; count += 1) texts.push(await (await app.request('/openapi.json')).text());
  expect(make).toHaveBeenCalledTimes(1);
  expect(new Set(texts).size).toBe(1);
});

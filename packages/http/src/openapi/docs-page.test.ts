import type * as files from 'node:fs/promises';
import { readFile } from 'node:fs/promises';
import { expect, test, vi } from 'vitest';

import { clientOf, testApi } from '../../test/test-api.js';

vi.mock('node:fs/promises', async (importActual) => {
  const actual = await importActual<typeof files>();
  return { ...actual, readFile: vi.fn<typeof readFile>(actual.readFile) };
});

test('the OpenAPI document is generated once, however often it is read', async () => {
  const api = testApi();
  const make = vi.spyOn(api, 'openApi');
  const send = clientOf(api);
  const texts = [];
  for (let count = 0; count < 3; count += 1) texts.push(await (await send('/openapi.json')).text());
  expect(make).toHaveBeenCalledTimes(1);
  expect(new Set(texts).size).toBe(1);
});

test('a client that has a document gets no second copy of it', async () => {
  const send = clientOf(testApi({ docs: true }));
  for (const path of ['/openapi.json', '/docs', '/docs/swagger-ui.css']) {
    const etag = (await send(path)).headers.get('etag') ?? '';
    const again = await send(path, { headers: { 'if-none-match': `"other", W/${etag}` } });
    expect([again.status, again.headers.get('etag'), await again.text()]).toEqual([304, etag, '']);
    expect((await send(path, { headers: { 'if-none-match': '"other"' } })).status).toBe(200);
  }
});

test('a file of the page is read once, however many requests need it', async () => {
  const send = clientOf(testApi({ docs: true }));
  const read = vi.mocked(readFile).mockRejectedValueOnce(new Error('too many open files'));
  const lengths = async (): Promise<readonly number[]> =>
    Promise.all([1, 2, 3].map(async () => (await (await send('/docs/swagger-ui.css')).text()).length));
  expect((await send('/docs/swagger-ui.css')).status).toBe(500);
  const [length, ...others] = [...(await lengths()), ...(await lengths())];
  expect(length).toBeGreaterThan(100_000);
  expect(new Set(others)).toEqual(new Set([length]));
  // The first read fails, and the failure is not cached.
  expect(read).toHaveBeenCalledTimes(2);
});

test.each(['/docs', '/docs/start.js', '/docs/swagger-ui.css', '/docs/swagger-ui-bundle.js'])(
  'a text of the page says how it is encoded: %s',
  async (path) => {
    const response = await clientOf(testApi({ docs: true }))(path);
    expect(response.headers.get('content-type')).toMatch(/^text\/\w+; charset=utf-8$/i);
  },
);

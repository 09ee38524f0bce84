import { HttpApi } from '@framework/http';
import { type HonoEnv, honoApp } from '@framework/http/hono';
import type { Hono } from 'hono';
import { getEventListeners } from 'node:events';
import { beforeEach, expect, test, vi } from 'vitest';

import { MemoryDatabases } from '../../test/fixtures/memory-databases.js';
import { liveRoute } from './live.js';
import { operatorApp } from './operator-app.js';
import { operatorProblems } from './problems.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';
const headers = { authorization: `Bearer ${token}` };
const files = new Map([
  ['index.html', { type: 'text/html; charset=utf-8', body: new TextEncoder().encode('<h1>Console</h1>') }],
]);

let all: MemoryDatabases;

beforeEach(() => {
  all = new MemoryDatabases();
});

/** The stream alone, with a snapshot every 20 milliseconds. */
function liveApp(
  closing?: AbortSignal,
  options: Partial<Parameters<typeof liveRoute>[1]> = {},
): Hono<HonoEnv> {
  const live = liveRoute(all.operator, { closing, intervalMs: 20, ...options });
  const info = { title: 'Live', version: '1' };
  return honoApp(new HttpApi({ name: 'operator', info, problems: operatorProblems, routes: [live] }));
}

/** A listener of the stream. */
class Listener {
  readonly #reader: ReadableStreamDefaultReader<string>;
  #text = '';

  constructor(response: Response) {
    if (response.body === null) throw new Error('There is no stream');
    this.#reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** The next event. */
  async next(): Promise<{ readonly id: number; readonly data: Record<string, never> }> {
    for (;;) {
      const [event, ...rest] = this.#text.split('\n\n');
      if (rest.length > 0) {
        this.#text = rest.join('\n\n');
        const [, data = ''] = /^data: (.*)$/m.exec(event ?? '') ?? [];
        return { id: Number(/^id: (.*)$/m.exec(event ?? '')?.[1]), data: JSON.parse(data) };
      }
      const { done, value } = await this.#reader.read();
      if (done) throw new Error('The stream has ended');
      this.#text += value;
    }
  }

  /** Resolves when the stream has ended. */
  async end(): Promise<void> {
    while (!(await this.#reader.read()).done);
  }

  leave(): Promise<void> {
    return this.#reader.cancel();
  }
}

test('everybody who listens gets the same snapshots, for which the databases are asked once', async () => {
  const { operator, first } = all;
  await first.register('notify');
  const asked = vi.spyOn(operator, 'consumers');
  const app = liveApp();
  const responses = await Promise.all([1, 2, 3].map(async () => app.request('/live')));
  expect(responses[0]?.headers.get('content-type')).toMatch(/^text\/event-stream/);
  const listeners = responses.map((response) => new Listener(response));
  const firsts = await Promise.all(listeners.map((listener) => listener.next()));
  expect(firsts.map(({ id }) => id)).toEqual([1, 1, 1]);
  expect(firsts[0]?.data).toMatchObject({
    consumers: { items: [{ handler: 'notify' }], failures: [] },
    deadLetters: { items: [] },
    shards: { items: [{ shards: ['0/0'] }, { shards: ['1/0'] }] },
  });
  const seconds = await Promise.all(listeners.map((listener) => listener.next()));
  expect(seconds.map(({ id }) => id)).toEqual([2, 2, 2]);
  expect(asked.mock.calls.length).toBeLessThanOrEqual(3);
  await Promise.all(listeners.map((listener) => listener.leave()));
});

test('nobody asks the databases any more when the last listener has left', async () => {
  const { operator } = all;
  const listener = new Listener(await liveApp().request('/live'));
  await listener.next();
  const asked = vi.spyOn(operator, 'consumers');
  await listener.leave();
  // Another app waits as long as four more snapshots take. Meanwhile this one asks at most for the one that it was waiting for, and the
  // other one may already be asking for a sixth.
  const other = new Listener(await liveApp().request('/live'));
  for (let number = 1; number <= 5; number++) await other.next();
  await other.leave();
  expect(asked.mock.calls.length).toBeLessThanOrEqual(5 + 1 + 1);
});

test('a database that does not answer is a failure of the snapshot', async () => {
  all.takeDown(1);
  const listener = new Listener(await liveApp().request('/live'));
  const { data } = await listener.next();
  expect(data).toMatchObject({ consumers: { failures: [{ shards: ['1/0'] }] } });
  await listener.leave();
});

test('sixteen may listen, and a place that is left is taken again', async () => {
  const app = liveApp();
  const responses = await Promise.all(Array.from({ length: 17 }, async () => app.request('/live')));
  expect(responses.filter(({ status }) => status === 200)).toHaveLength(16);
  expect(responses.filter(({ status }) => status === 503)).toHaveLength(1);
  const listeners = responses.filter(({ ok }) => ok).map((response) => new Listener(response));
  await Promise.all(listeners.map((listener) => listener.next()));
  await Promise.all(listeners.map((listener) => listener.leave()));
  await expect
    .poll(async () => {
      const response = await app.request('/live');
      await response.body?.cancel();
      return response.status;
    })
    .toBe(200);
});

test('a request for the headers alone takes no place', async () => {
  const app = liveApp();
  for (let number = 0; number < 17; number++) {
    const response = await app.request('/live', { method: 'HEAD' });
    expect([response.status, response.body]).toEqual([200, null]);
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/);
  }
  const listener = new Listener(await app.request('/live'));
  await listener.next();
  await listener.leave();
});

test('all streams end when the server closes, and none begins', async () => {
  const closing = new AbortController();
  const app = liveApp(closing.signal);
  const listener = new Listener(await app.request('/live'));
  await listener.next();
  closing.abort();
  await listener.end();
  expect((await app.request('/live')).status).toBe(503);
  await expect.poll(() => getEventListeners(closing.signal, 'abort')).toEqual([]);
  const service = operatorApp(all.operator, { token, closing: closing.signal });
  expect((await service.request('/live', { headers })).status).toBe(503);
});

/** A request whose sender can leave, and what listens to its end and to that of the server. */
function leavingRequest() {
  const [leaving, closing] = [new AbortController(), new AbortController()];
  const request = new Request('http://localhost/live', { signal: leaving.signal });
  const listenerCounts = (): readonly number[] =>
    [request.signal, closing.signal].map((signal) => getEventListeners(signal, 'abort').length);
  return { request, leaving, closing, listenerCounts };
}

const noListeners = [0, 0];

test('nothing listens to a request any more when its sender has cancelled the stream', async () => {
  const { request, closing, listenerCounts } = leavingRequest();
  expect(listenerCounts()).toEqual(noListeners);
  const listener = new Listener(await liveApp(closing.signal).request(request));
  await listener.next();
  expect(listenerCounts().every((count) => count > 0)).toBe(true);
  await listener.leave();
  await expect.poll(listenerCounts).toEqual(noListeners);
});

test('nothing listens to a request any more when its sender has gone, and the databases are left alone', async () => {
  const { request, leaving, closing, listenerCounts } = leavingRequest();
  const listener = new Listener(await liveApp(closing.signal).request(request));
  await listener.next();
  leaving.abort();
  await expect.poll(listenerCounts).toEqual(noListeners);
  const asked = vi.spyOn(all.operator, 'consumers');
  const other = new Listener(await liveApp().request('/live'));
  for (let number = 1; number <= 3; number++) await other.next();
  await other.leave();
  expect(asked.mock.calls.length).toBeLessThanOrEqual(3 + 1 + 1);
});

test('nothing listens to a request whose sender leaves before the first snapshot, and its place is free', async () => {
  const { request, leaving, closing, listenerCounts } = leavingRequest();
  const app = liveApp(closing.signal);
  const slow = Promise.withResolvers<void>();
  vi.spyOn(all.operator, 'shards').mockImplementation(() =>
    slow.promise.then(() => ({ items: [], failures: [] })),
  );
  const others = Array.from({ length: 15 }, async () => app.request('/live'));
  const answer = app.request(request);
  await vi.waitFor(() => expect(listenerCounts()[0]).toBeGreaterThan(0));
  leaving.abort();
  const next = app.request('/live');
  slow.resolve();
  expect((await answer).body).toBeNull();
  expect((await next).status).toBe(200);
  expect(listenerCounts()[0]).toBe(0);
  for (const response of [...(await Promise.all(others)), await next]) await response.body?.cancel();
  await expect.poll(listenerCounts).toEqual(noListeners);
});

test('nothing listens to a request whose first snapshot fails', async () => {
  const { request, closing, listenerCounts } = leavingRequest();
  vi.spyOn(all.operator, 'shards').mockRejectedValue(new Error('no luck'));
  expect((await liveApp(closing.signal).request(request)).status).toBe(500);
  expect(listenerCounts()).toEqual(noListeners);
});

test('a place is free again after a first snapshot that fails, however often that happens', async () => {
  const app = liveApp();
  const shards = vi.spyOn(all.operator, 'shards').mockRejectedValue(new Error('no luck'));
  for (let round = 0; round < 2; round++) {
    const failed = await Promise.all(Array.from({ length: 16 }, async () => app.request('/live')));
    expect(failed.map(({ status }) => status)).toEqual(Array.from({ length: 16 }, () => 500));
  }
  shards.mockRestore();
  const response = await app.request('/live');
  expect(response.status).toBe(200);
  const listener = new Listener(response);
  await listener.next();
  await listener.leave();
});

test('a stream whose later snapshot fails ends, reports the error, and leaves no listener', async () => {
  const { request, closing, listenerCounts } = leavingRequest();
  const errors: unknown[] = [];
  const app = liveApp(closing.signal, { intervalMs: 1, onError: (error) => errors.push(error) });
  const listener = new Listener(await app.request(request));
  vi.spyOn(all.operator, 'shards').mockRejectedValue(new Error('no luck'));
  await listener.end();
  expect(errors).toMatchObject([{ message: 'no luck' }]);
  await expect.poll(listenerCounts).toEqual(noListeners);
});

test('the stream needs the token', async () => {
  expect((await operatorApp(all.operator, { token }).request('/live')).status).toBe(401);
});

test('the files of the console need no token, and forbid everything from elsewhere', async () => {
  const app = operatorApp(all.operator, { token, console: async () => files });
  const page = await app.request('/console/');
  expect(page.status).toBe(200);
  expect(await page.text()).toBe('<h1>Console</h1>');
  expect(page.headers.get('content-security-policy')).toMatch(
    /^default-src 'none'; script-src 'self'; .*frame-ancestors 'none'/,
  );
  expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
  expect(page.headers.get('x-content-type-options')).toBe('nosniff');
  const short = await app.request('/console');
  expect([short.status, short.headers.get('location')]).toEqual([308, 'console/']);
  // What is no file of the page is like every other address.
  expect((await app.request('/console/../consumers')).status).toBe(401);
  expect((await app.request('/console/other.js')).status).toBe(401);
  expect((await app.request('/console/other.js', { headers })).status).toBe(404);
  expect((await operatorApp(all.operator, { token }).request('/console/', { headers })).status).toBe(404);
});

test('a page that cannot be read is read again for the next request', async () => {
  const errors: unknown[] = [];
  let attempts = 0;
  const read = async (): Promise<typeof files> => {
    if (attempts++ === 0) throw new Error('not built');
    return files;
  };
  const app = operatorApp(all.operator, { token, console: read, onError: (error) => errors.push(error) });
  expect((await app.request('/console/')).status).toBe(500);
  expect(errors).toHaveLength(1);
  expect((await app.request('/console/')).status).toBe(200);
});

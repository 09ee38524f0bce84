import type { HonoEnv } from '@framework/http/hono';
import type { Hono } from 'hono';
import { isDeepStrictEqual } from 'node:util';
import { beforeEach, describe, expect, test } from 'vitest';

import { MemoryDatabases } from '../../test/fixtures/memory-databases.js';
import { operatorApp } from './operator-app.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';
const signed = { by: 'olivia', reason: 'the mail server is back' };

let all: MemoryDatabases;
let readOnly: Hono<HonoEnv>;
let writer: Hono<HonoEnv>;
let deadEventId: string;

beforeEach(async () => {
  all = new MemoryDatabases({
    relays: [{ name: 'notify', publishAgain: async (events) => events.map(() => ({ kind: 'confirmed' })) }],
    extensions: [
      {
        views: [
          {
            name: 'letters',
            summary: 'A view',
            read: async () => ({ items: [{ letter: 'a' }], failures: [], next: undefined }),
          },
        ],
        invariants: [
          {
            name: 'amounts',
            summary: 'A check',
            check: async () => ({ items: [], examinedCount: 1, failures: [], next: undefined }),
          },
        ],
      },
    ],
  });
  readOnly = operatorApp(all.operator, { token });
  writer = operatorApp(all.operator, { token, readOnly: false });
  await all.first.register('notify');
  const ids = await all.first.writeModels(['a', 'b']);
  deadEventId = ids[0] ?? '';
  await all.first.kill('notify', ids, 'mailbox full\n    at send');
});

/** A valid body for each change. */
const bodies: Readonly<Record<string, object>> = {
  '/replay': { filter: { handler: 'notify' }, ...signed },
  '/skip': { filter: { handler: 'notify' }, ...signed },
  '/publish-again': { relay: 'notify', filter: { modelId: 'a' }, ...signed },
  '/pause': { handler: 'notify', ...signed },
  '/resume': { handler: 'notify', ...signed },
  '/retire': { handler: 'notify', discardBlocked: true, ...signed },
};

interface Caller {
  readonly app: () => Hono<HonoEnv>;
  readonly authorization: string | undefined;
}

/** Who asks. */
const callers: Readonly<Record<string, Caller>> = {
  'no token': { app: () => writer, authorization: undefined },
  'a wrong token': { app: () => writer, authorization: `Bearer ${token.toUpperCase()}` },
  'a token to read': { app: () => readOnly, authorization: `Bearer ${token}` },
  'a token to write': { app: () => writer, authorization: `Bearer ${token}` },
};

/** The operations of the document, each with a request that a writer gets an answer to. */
const operations: readonly (readonly [method: string, path: string])[] = [
  ...[
    '/about',
    '/shards',
    '/consumers',
    '/blocked',
    '/dead-letters',
    '/audit',
    '/events',
    '/views/letters',
    '/invariants/amounts',
  ].map((path) => ['GET', path] as const),
  ...['/events/{id}', '/models/{id}', '/actions/{id}', '/why/{id}'].map((path) => ['GET', path] as const),
  ['GET', '/idempotency-keys'],
  ...Object.keys(bodies).map((path) => ['POST', path] as const),
];

async function send(
  { app, authorization }: Caller,
  method: string,
  path: string,
  body: unknown = bodies[path],
): Promise<Response> {
  const query = path === '/idempotency-keys' ? '?key=k' : '';
  const headers = {
    ...(authorization !== undefined && { authorization }),
    ...(method === 'POST' && { 'content-type': 'application/json' }),
  };
  const init = { method, headers, ...(method === 'POST' && { body: JSON.stringify(body) }) };
  return app().request(`${path.replace('{id}', deadEventId)}${query}`, init);
}

/** Everything that a change could change. */
function state(): unknown {
  return [all.first.state, all.second.state];
}

function expectedStatus(caller: string, method: string): number {
  if (caller === 'no token' || caller === 'a wrong token') return 401;
  return caller === 'a token to read' && method === 'POST' ? 403 : 200;
}

describe('over HTTP', () => {
  test('the tests know every operation of the document', async () => {
    const response = await send(callers['a token to read']!, 'GET', '/openapi.json');
    const document = (await response.json()) as { readonly paths: Readonly<Record<string, object>> };
    const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    // The stream has tests of its own.
    const tested = [...operations.map((each) => each.join(' ')), 'GET /live'];
    expect(documented.toSorted()).toEqual(tested.toSorted());
  });

  const cases = operations.flatMap(([method, path]) =>
    Object.keys(callers).map((caller) => [method, path, caller] as const),
  );
  test.each(cases)(
    '%s %s answers %s as documented, and a refusal changes nothing',
    async (method, path, caller) => {
      const before = state();
      const response = await send(callers[caller]!, method, path);
      const status = expectedStatus(caller, method);
      expect(response.status).toBe(status);
      expect(response.headers.get('cache-control')).toBe('no-store');
      expect(response.headers.get('content-type')).toMatch(
        status === 200 ? /^application\/json/ : /^application\/problem\+json/,
      );
      const body: unknown = await response.json();
      const isChange = status === 200 && method === 'POST';
      expect(body).toMatchObject(isChange ? { failures: [], items: [{ shards: ['0/0'] }] } : {});
      expect(isDeepStrictEqual(state(), before)).toBe(!isChange);
    },
  );

  test('the document needs the token, too', async () => {
    expect((await send(callers['no token']!, 'GET', '/openapi.json')).status).toBe(401);
  });

  test.each<[string, string, string, unknown, number, RegExp]>([
    ['an unknown parameter', 'GET', '/consumers?colour=red', undefined, 400, /query\/colour/],
    ['an invalid limit', 'GET', '/blocked?limit=0', undefined, 400, /query\/limit/],
    ['a search without a bound', 'GET', '/events?type=ThingChangedEvent', undefined, 400, /add since/],
    ['an unknown shard', 'GET', '/events?shard=9/9', undefined, 400, /not configured/],
    ['a cursor of something else', 'GET', '/blocked?after=x', undefined, 400, /invalid-cursor/],
    ['a forged cursor', 'GET', '/blocked?after=0:garbage', undefined, 400, /invalid-cursor/],
    [
      'a text that no database can store',
      'POST',
      '/replay',
      { filter: { modelId: '\u0000' }, ...signed },
      400,
      /modelId contains/,
    ],
    ['an unknown handler', 'GET', '/dead-letters?handler=nobody', undefined, 404, /unknown-handler/],
    ['a change without a reason', 'POST', '/pause', { handler: 'notify', by: 'x' }, 400, /#\/reason/],
    ['a replay of everything', 'POST', '/replay', { filter: {}, ...signed }, 400, /name a handler/],
    ['an unknown field', 'POST', '/pause', { handler: 'notify', ...signed, force: true }, 400, /#\/force/],
    ['an unknown path', 'GET', '/nowhere', undefined, 404, /openapi\.json/],
  ])('%s is refused with what to do', async (_name, method, path, body, status, text) => {
    const before = state();
    const response = await send(callers['a token to write']!, method, path, body);
    expect(response.status).toBe(status);
    expect(await response.text()).toMatch(text);
    expect(state()).toEqual(before);
  });

  test('dead letters whose error has no first line are replayed by it', async () => {
    const [id = ''] = await all.first.write('c', [1]);
    await all.first.kill('notify', [id], '');
    const body = { filter: { errorLine: '' }, ...signed };
    const response = await send(callers['a token to write']!, 'POST', '/replay', body);
    expect(await response.json()).toMatchObject({ count: 1 });
  });

  test('a short token is refused', () => {
    expect(() => operatorApp(all.operator, { token: 'short' })).toThrow(/at least 32/);
  });

  test.each(['two words', 'two\nlines', 'ünicode'])(
    'a token that no header can carry is refused: %j',
    (text) => {
      expect(() => operatorApp(all.operator, { token: text.repeat(8) })).toThrow(/no header can carry/);
    },
  );

  test('a dry run of a writer changes nothing', async () => {
    const before = state();
    const dryRun = { ...bodies['/replay'], dryRun: true };
    const response = await send(callers['a token to write']!, 'POST', '/replay', dryRun);
    expect(await response.json()).toMatchObject({ count: 2 });
    expect(state()).toEqual(before);
  });

  test.each([
    ['/replay', 2, 0],
    ['/skip', 2, 0],
    ['/pause', 0, 0],
    ['/resume', 0, 0],
  ])('%s twice in a row is answered twice, and changes events once', async (path, first, second) => {
    const caller = callers['a token to write']!;
    const answers = [await send(caller, 'POST', path), await send(caller, 'POST', path)];
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    const counts = await Promise.all(answers.map(async (answer) => (await answer.json()) as object));
    expect(counts).toMatchObject([{ count: first }, { count: second }]);
    expect(all.first.audit).toHaveLength(2);
  });

  test('/retire twice in a row finds no handler the second time', async () => {
    const caller = callers['a token to write']!;
    expect((await send(caller, 'POST', '/retire')).status).toBe(200);
    const again = await send(caller, 'POST', '/retire');
    expect([again.status, await again.json()]).toMatchObject([404, { code: 'unknown-handler' }]);
  });

  test('each operation names the database that does not answer, and no message of its driver', async () => {
    for (const database of [all.first, all.second]) await database.register('notify');
    all.takeDown(1);
    const withoutDatabases = new Set(['/about', '/views/letters', '/invariants/amounts']);
    for (const [method, path] of operations) {
      const response = await send(callers['a token to write']!, method, path);
      const text = await response.text();
      expect([path, response.status]).toEqual([path, 200]);
      expect(text).not.toMatch(/canary|ECONN/);
      const { failures } = JSON.parse(text) as { readonly failures?: unknown };
      const missing = [{ shards: ['1/0'], code: 'shard-unavailable' }];
      expect([path, failures ?? []]).toEqual([path, withoutDatabases.has(path) ? [] : missing]);
    }
  });

  test.each([
    ['limit', '1000', '1001'],
    ['limit', '1', '0'],
    ['handler', 'ü'.repeat(255), 'ü'.repeat(256)],
    ['errorLine', 'ü'.repeat(200), 'ü'.repeat(201)],
  ])(
    'the parameter %s is accepted up to its limit, and refused behind it',
    async (name, accepted, refused) => {
      const ask = async (value: string): Promise<unknown> => {
        const query = new URLSearchParams({ [name]: value });
        const answer = await send(callers['a token to read']!, 'GET', `/blocked?${query.toString()}`);
        return [answer.status, ((await answer.json()) as { readonly code?: string }).code];
      };
      // No database knows a handler with such a name.
      expect(await ask(accepted)).toEqual(name === 'handler' ? [404, 'unknown-handler'] : [200, undefined]);
      expect(await ask(refused)).toEqual([400, 'bad-request']);
    },
  );

  test.each([
    ['by', 255],
    ['reason', 1_000],
    ['handler', 255],
  ])('the field %s of a change has at most %i characters', async (name, max) => {
    const status = async (length: number): Promise<number> => {
      const body = { handler: 'notify', ...signed, [name]: 'ü'.repeat(length) };
      return (await send(callers['a token to write']!, 'POST', '/pause', body)).status;
    };
    expect(await status(max)).toBe(name === 'handler' ? 404 : 200);
    expect([await status(max + 1), await status(0)]).toEqual([400, 400]);
  });

  test('a body of exactly 65,536 bytes is read, and a longer one is refused', async () => {
    expect(await post(65_536)).toEqual([200, undefined]);
    expect(await post(65_537)).toEqual([413, 'bad-request']);
  });

  test.each([
    [undefined, 415],
    ['text/plain', 415],
    ['application/jsonx', 415],
    ['application/json; charset=utf-8', 200],
    ['APPLICATION/JSON', 200],
  ])('a body of the type %s is answered with %i', async (type, status) => {
    const headers = new Headers({ authorization: `Bearer ${token}`, ...(type && { 'content-type': type }) });
    const body = new TextEncoder().encode(JSON.stringify({ handler: 'notify', ...signed }));
    expect((await writer.request('/pause', { method: 'POST', headers, body })).status).toBe(status);
  });

  test('an unexpected error is shown by its code alone, and reported to the process', async () => {
    const errors: unknown[] = [];
    const app = operatorApp(all.operator, { token, onError: (error) => errors.push(error) });
    all.takeDown(0);
    all.operator.consumers = () => Promise.reject(new Error('canary'));
    const response = await app.request('/consumers', { headers: { authorization: `Bearer ${token}` } });
    expect([response.status, await response.json()]).toMatchObject([500, { code: 'internal' }]);
    expect(errors).toMatchObject([{ message: 'canary' }]);
  });
});

/** Sends a valid change, padded to a number of bytes; returns the status and the code of a problem. */
async function post(bytes: number): Promise<unknown> {
  const body = JSON.stringify({ handler: 'notify', ...signed });
  const answer = await writer.request('/pause', {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: body + ' '.repeat(bytes - Buffer.byteLength(body)),
  });
  return [answer.status, ((await answer.json()) as { readonly code?: string }).code];
}

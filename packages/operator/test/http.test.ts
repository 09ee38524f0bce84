import type { OpenAPIHono } from '@hono/zod-openapi';
import { isDeepStrictEqual } from 'node:util';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';

import { operatorApp } from '../src/http/index.js';
import { type OperatedDatabases, operatedDatabases } from './fixtures/operated-databases.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';
const signed = { by: 'olivia', reason: 'the mail server is back' };

let all: OperatedDatabases;
let readOnly: OpenAPIHono;
let writer: OpenAPIHono;
let deadEventId: string;

beforeAll(async () => {
  all = await operatedDatabases([
    {
      views: [
        {
          name: 'letters',
          summary: 'A view',
          read: async () => ({ items: [{ letter: 'a' }], failures: [], next: undefined }),
        },
      ],
    },
  ]);
  readOnly = operatorApp(all.operator, { token });
  writer = operatorApp(all.operator, { token, readOnly: false });
});

beforeEach(async () => {
  const { first, second } = all;
  await Promise.all([first.reset(), second.reset()]);
  await first.register('notify');
  const ids = await first.write('a', [1, 2]);
  deadEventId = ids[0] ?? '';
  await first.kill('notify', ids, 'mailbox full\n    at send');
});

/** A valid body for each change. */
const bodies: Readonly<Record<string, object>> = {
  '/replay': { filter: { handler: 'notify' }, ...signed },
  '/skip': { filter: { handler: 'notify' }, ...signed },
  '/pause': { handler: 'notify', ...signed },
  '/resume': { handler: 'notify', ...signed },
  '/retire': { handler: 'notify', discardBlocked: true, ...signed },
};

interface Caller {
  readonly app: () => OpenAPIHono;
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
async function state(): Promise<unknown> {
  const { first, second } = all;
  return Promise.all(
    [first, second].map((database) =>
      Promise.all([
        database.query('select handler, event_id, dead, attempts from eventlog.parked_events order by 1, 2'),
        database.query('select * from eventlog.handlers'),
        database.query('select change_id, phase from eventlog.operator_audit order by 1, 2'),
      ]),
    ),
  );
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
      const before = await state();
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
      expect(isDeepStrictEqual(await state(), before)).toBe(!isChange);
    },
  );

  test('the document needs the token, too', async () => {
    expect((await send(callers['no token']!, 'GET', '/openapi.json')).status).toBe(401);
  });

  test.each<[string, string, string, unknown, number, RegExp]>([
    ['an unknown parameter', 'GET', '/consumers?colour=red', undefined, 400, /query\.colour/],
    ['an invalid limit', 'GET', '/blocked?limit=0', undefined, 400, /query\.limit/],
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
    ['a change without a reason', 'POST', '/pause', { handler: 'notify', by: 'x' }, 400, /body\.reason/],
    ['a replay of everything', 'POST', '/replay', { filter: {}, ...signed }, 400, /name a handler/],
    ['an unknown field', 'POST', '/pause', { handler: 'notify', ...signed, force: true }, 400, /body\.force/],
    ['an unknown path', 'GET', '/nowhere', undefined, 404, /openapi\.json/],
  ])('%s is refused with what to do', async (_name, method, path, body, status, text) => {
    const before = await state();
    const response = await send(callers['a token to write']!, method, path, body);
    expect(response.status).toBe(status);
    expect(await response.text()).toMatch(text);
    expect(await state()).toEqual(before);
  });

  test('dead letters whose error has no first line are replayed by it', async () => {
    await all.first.query(`update eventlog.parked_events set error = ''`);
    const body = { filter: { errorLine: '' }, ...signed };
    const response = await send(callers['a token to write']!, 'POST', '/replay', body);
    expect(await response.json()).toMatchObject({ count: 2 });
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
    const before = await state();
    const dryRun = { ...bodies['/replay'], dryRun: true };
    const response = await send(callers['a token to write']!, 'POST', '/replay', dryRun);
    expect(await response.json()).toMatchObject({ count: 2 });
    expect(await state()).toEqual(before);
  });
});

describe('a search', () => {
  test('follows the logs of all databases backwards, page by page, and loses nothing', async () => {
    const { operator, first, second } = all;
    for (let version = 3; version <= 8; version++) {
      await first.write('a', [version], { principal: version % 2 === 0 ? 'bob' : 'alice' });
      await second.write('b', [version]);
    }
    const seen: string[] = [];
    let after: string | undefined;
    do {
      const page = await operator.events({}, { limit: 3, after });
      expect(page.failures).toEqual([]);
      seen.push(...page.items.map(({ event }) => `${event.modelId}${event.modelVersion}`));
      after = page.next;
    } while (after !== undefined);
    expect(seen.filter((each) => each.startsWith('a'))).toEqual([
      'a8',
      'a7',
      'a6',
      'a5',
      'a4',
      'a3',
      'a2',
      'a1',
    ]);
    expect(seen.filter((each) => each.startsWith('b'))).toEqual(['b8', 'b7', 'b6', 'b5', 'b4', 'b3']);
    const since = new Date(Date.now() - 60_000);
    const ofBob = await operator.events({ principal: 'bob', since });
    expect(ofBob.items.map(({ event }) => event.modelVersion)).toEqual([8, 6, 4]);
    const ofShard = await operator.events({ shard: '1/0', modelId: 'b' }, { limit: 2 });
    expect(ofShard.items.map(({ event }) => event.modelVersion)).toEqual([8, 7]);
    expect((await operator.events({ until: new Date(Date.now() - 3_600_000) })).items).toEqual([]);
  });

  test('finds the events of a time among older and newer ones', async () => {
    const { operator, first } = all;
    await first.reset();
    const base = Date.now() - 10 * 3_600_000;
    for (let hour = 0; hour < 8; hour++)
      await first.write('t', [hour + 1], { createdDate: new Date(base + hour * 3_600_000) });
    const since = new Date(base + 2.5 * 3_600_000);
    const until = new Date(base + 5.5 * 3_600_000);
    const { items } = await operator.events({ principal: 'alice', since, until });
    expect(items.map(({ event }) => event.modelVersion)).toEqual([6, 5, 4]);
  });
});

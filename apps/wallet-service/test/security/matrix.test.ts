import { ShardIdentifier, ShardedId } from '@framework/core';
import { Big } from 'big.js';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { NotifyRecipientAction } from '../../src/notification/notify-recipient.js';
import {
  CompleteTransferAction,
  RefundTransferAction,
  SettleTransferAction,
} from '../../src/transfer/transfer-saga.js';
import { Transfer } from '../../src/transfer/transfer.js';
import { Wallet } from '../../src/wallet/wallet.js';
import { type MemoryService, memoryService } from '../memory-service.js';
import type { Answer } from '../wallet-client.js';
import { TestIssuer, audience, issuer } from '../../../../packages/http/test/test-issuer.js';

const owner = randomUUID();
const other = randomUUID();
let service: MemoryService;
let issuing: TestIssuer;
let folder: string;
/** What refused requests are about. */
let unchanged: Scene;

beforeAll(async () => {
  issuing = await TestIssuer.create();
  folder = await mkdtemp(join(tmpdir(), 'wallet-matrix-'));
  const file = join(folder, 'jwks.json');
  await writeFile(file, JSON.stringify(await issuing.keys()));
  const jwt = {
    issuer,
    audience,
    'jwks-file': file,
    algorithms: ['ES256'],
    'operator-role': 'operator',
  };
  const http = { limits: { 'per-principal': false } };
  service = memoryService({ http, security: { jwt } });
  unchanged = await scene();
});
afterAll(async () => {
  await rm(folder, { recursive: true });
});

/** Who sends a request: those with a valid token, and those without one, by what they send. */
const known = {
  owner: () => issuing.token({ subject: owner }),
  other: () => issuing.token({ subject: other, roles: ['customer'] }),
  operator: () => issuing.token({ subject: randomUUID(), roles: ['operator'] }),
};
const unknown: Readonly<Record<string, () => string | undefined | Promise<string>>> = {
  none: () => undefined,
  expired: () => issuing.token({ subject: owner, expiresInS: -60 }),
  'without an end': () => issuing.token({ subject: owner, expiresInS: undefined }),
  'not yet valid': () => issuing.token({ subject: owner, notBeforeInS: 60 }),
  'wrong audience': () => issuing.token({ subject: owner, audience: 'other-service' }),
  'wrong issuer': () => issuing.token({ subject: owner, issuer: 'https://id.example.org' }),
  'alg none': () => issuing.unsigned({ subject: owner }),
  'HMAC with the public key': () => issuing.signedWithPublicKey({ subject: owner }),
  'unknown key id': () => issuing.token({ subject: owner, kid: 'key-9' }),
  'other algorithm': () => issuing.ofOtherAlgorithm({ subject: owner }),
  'signed by another issuer': () => issuing.forged({ subject: owner }),
  'no subject': () => issuing.token({ subject: undefined }),
  malformed: () => 'not.a.token',
};
type Known = keyof typeof known;

/** What an operation is about: a wallet of the owner with money, one of somebody else, and a transfer between them. */
interface Scene {
  readonly wallet: string;
  readonly destination: string;
  readonly transfer: string;
}

interface Sent {
  readonly path: string;
  /** Sent with POST; otherwise the request is a GET. */
  readonly body?: object;
}

interface Expected {
  readonly request: (scene: Scene) => Sent;
  /** The status, with the code of a problem; for lists, with the number of items. */
  readonly answers: Readonly<Record<Known, string>>;
  /** Whether it is answered without a token. */
  readonly isPublic?: true;
}

const onlyOwner = { owner: '200', other: '404 wallet-not-found', operator: '404 wallet-not-found' };
const alsoOperator = { ...onlyOwner, operator: '200' };
const everybody = { owner: '200', other: '200', operator: '200' };

/** What each operation answers to whom; the operations are those of the OpenAPI document. */
const expectations: Readonly<Record<string, Expected>> = {
  'post /wallets': {
    request: () => ({ path: '/wallets', body: { country: 'DE', ownerId: owner, currency: 'EUR' } }),
    answers: { owner: '201', other: '403 forbidden', operator: '201' },
  },
  'get /wallets': {
    request: () => ({ path: `/wallets?ownerId=${owner}&limit=1` }),
    answers: { owner: '200, 1 item', other: '200, 0 items', operator: '200, 1 item' },
  },
  'get /wallets/{id}': {
    request: ({ wallet }) => ({ path: `/wallets/${wallet}` }),
    answers: alsoOperator,
  },
  'get /wallets/{id}/events': {
    request: ({ wallet }) => ({ path: `/wallets/${wallet}/events?limit=1` }),
    answers: { ...alsoOperator, owner: '200, 1 item', operator: '200, 1 item' },
  },
  'post /wallets/{id}/deposit': {
    request: ({ wallet }) => ({ path: `/wallets/${wallet}/deposit`, body: { amount: '1' } }),
    answers: onlyOwner,
  },
  'post /wallets/{id}/withdraw': {
    request: ({ wallet }) => ({ path: `/wallets/${wallet}/withdraw`, body: { amount: '1' } }),
    answers: onlyOwner,
  },
  'post /wallets/{id}/close': {
    request: ({ wallet }) => ({ path: `/wallets/${wallet}/close`, body: {} }),
    answers: alsoOperator,
  },
  'post /transfers': {
    request: ({ wallet, destination }) => ({
      path: '/transfers',
      body: { sourceId: wallet, destId: destination, amount: '1' },
    }),
    answers: { ...onlyOwner, owner: '202' },
  },
  'get /transfers/{id}': {
    request: ({ transfer }) => ({ path: `/transfers/${transfer}` }),
    answers: { owner: '200', other: '404 transfer-not-found', operator: '200' },
  },
  'get /health/live': { request: () => ({ path: '/health/live' }), answers: everybody, isPublic: true },
  'get /health/ready': { request: () => ({ path: '/health/ready' }), answers: everybody, isPublic: true },
};

async function scene(): Promise<Scene> {
  const tokenOfOwner = await known.owner();
  const wallet = await open(tokenOfOwner, owner, 'DE');
  const destination = await open(await known.other(), other, 'MX');
  const body = { sourceId: wallet, destId: destination, amount: '1' };
  const transfer = await send({ path: '/transfers', body }, tokenOfOwner);
  return { wallet, destination, transfer: idOf(transfer) };
}

async function open(token: string, ownerId: string, country: string): Promise<string> {
  const body = { country, ownerId, currency: 'EUR', initialBalance: '100' };
  return idOf(await send({ path: '/wallets', body }, token));
}

function idOf({ status, body }: Answer): string {
  expect([201, 202]).toContain(status);
  return String(body['id']);
}

function send(
  { path, body }: Sent,
  token: string | undefined,
  headers: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  return service.client.send(path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: {
      ...headers,
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}

/** An answer in the form of the expectations. */
function summary({ status, body }: Answer): string {
  if (status >= 400) return `${status} ${String(body['code'])}`;
  const { items } = body;
  if (!Array.isArray(items)) return String(status);
  return `${status}, ${items.length} ${items.length === 1 ? 'item' : 'items'}`;
}

const operations = Object.entries(expectations);

test('every operation of the OpenAPI document has expectations, and says that it needs a token', async () => {
  const { body } = await service.client.get('/openapi.json');
  const paths = body['paths'] as Readonly<Record<string, Readonly<Record<string, object>>>>;
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [`${method} ${path}`, operation] as const),
  );
  expect(documented.map(([name]) => name).toSorted()).toEqual(operations.map(([name]) => name).toSorted());
  for (const [name, operation] of documented) {
    const { answers, isPublic = false } = expectations[name] ?? {};
    const { security, responses } = operation as {
      readonly security?: unknown;
      readonly responses: Readonly<Record<string, unknown>>;
    };
    expect([name, security]).toEqual([name, isPublic ? undefined : [{ bearer: [] }]]);
    const statuses = Object.values(answers ?? {}).map((answer) => answer.slice(0, 3));
    expect(Object.keys(responses)).toEqual(
      expect.arrayContaining(isPublic ? statuses : [...statuses, '401']),
    );
    expect([name, '403' in responses]).toEqual([name, statuses.includes('403')]);
  }
});

describe.each(operations)('%s', (_operation, { request, answers, isPublic = false }) => {
  test.each(Object.keys(known) as Known[])('answers as documented to: %s', async (who) => {
    const sent = request(await scene());
    const before = service.contents();
    const answer = await send(sent, await known[who]());
    expect(summary(answer)).toBe(answers[who]);
    const after = service.contents();
    const isWritten = answer.status < 400 && sent.body !== undefined;
    expect(isWritten ? after !== before : after).toEqual(isWritten || before);
  });

  test.each(Object.keys(unknown))('asks for a valid token: %s', async (what) => {
    const sent = request(unchanged);
    const before = service.contents();
    const token = await unknown[what]?.();
    const answer = await send(sent, token, { 'idempotency-key': randomUUID() });
    expect(summary(answer)).toBe(isPublic ? '200' : '401 unauthorized');
    expect(service.contents()).toEqual(before);
    if (isPublic) return;
    const challenge = 'Bearer realm="wallet-service"';
    expect(answer.headers['www-authenticate']).toBe(
      token === undefined ? challenge : `${challenge}, error="invalid_token"`,
    );
    expect(answer.body['detail']).toBe('Send a valid bearer token in the header Authorization.');
  });
});

const readIt = (id: string): Sent => ({ path: `/wallets/${id}` });
const closeIt = (id: string): Sent => ({ path: `/wallets/${id}/close`, body: {} });

describe("somebody else's wallet", () => {
  /** Requests about a wallet, with bodies that its owner would be told about, too. */
  const requests: readonly (readonly [string, (id: string, mine: string) => Sent])[] = [
    ['reading it', readIt],
    ['its events', (id) => ({ path: `/wallets/${id}/events` })],
    ['its events after an invalid cursor', (id) => ({ path: `/wallets/${id}/events?cursor=x` })],
    ['a deposit', (id) => ({ path: `/wallets/${id}/deposit`, body: { amount: '1' } })],
    ['a deposit of nothing', (id) => ({ path: `/wallets/${id}/deposit`, body: { amount: '0' } })],
    [
      'a deposit in upper case',
      (id) => ({ path: `/wallets/${id.toUpperCase()}/deposit`, body: { amount: '1' } }),
    ],
    ['too large a withdrawal', (id) => ({ path: `/wallets/${id}/withdraw`, body: { amount: '1000' } })],
    ['closing it', closeIt],
    ['a transfer', (id, mine) => ({ path: '/transfers', body: { sourceId: id, destId: mine, amount: '1' } })],
    [
      'a transfer of nothing',
      (id, mine) => ({ path: '/transfers', body: { sourceId: id, destId: mine, amount: '0' } }),
    ],
    [
      'a transfer to itself',
      (id) => ({ path: '/transfers', body: { sourceId: id, destId: id, amount: '1' } }),
    ],
  ];

  test.each(requests)('is answered like an unknown one, open or closed: %s', async (_what, request) => {
    const { wallet, destination: mine } = await scene();
    const token = await known.other();
    const missing = ShardedId.generate(Wallet, ShardIdentifier.of(0, 0)).value;
    const forUnknown = await send(request(missing, mine), token);
    const forOpen = await send(request(wallet, mine), token);
    await send({ path: `/wallets/${wallet}/close`, body: {} }, await known.owner());
    const forClosed = await send(request(wallet, mine), token);
    expect(forUnknown.status).toBe(404);
    expect(comparable(forOpen, wallet)).toEqual(comparable(forUnknown, missing));
    expect(comparable(forClosed, wallet)).toEqual(comparable(forUnknown, missing));
  });

  test.each([{ 'if-none-match': '"1"' }, { 'if-match': '"1"' }, { 'if-match': '"9"' }, { 'if-match': '*' }])(
    'is answered like an unknown one to requests on the condition %o',
    async (condition) => {
      const { wallet } = await scene();
      const token = await known.other();
      const missing = ShardedId.generate(Wallet, ShardIdentifier.of(0, 0)).value;
      for (const request of [readIt, closeIt]) {
        const forUnknown = await send(request(missing), token, condition);
        const forForeign = await send(request(wallet), token, condition);
        expect(comparable(forForeign, wallet)).toEqual(comparable(forUnknown, missing));
      }
    },
  );

  test('has transfers that are answered like unknown ones', async () => {
    const { transfer } = await scene();
    const token = await known.other();
    const missing = ShardedId.generate(Transfer, ShardIdentifier.of(0, 0)).value;
    const forUnknown = await send({ path: `/transfers/${missing}` }, token);
    const forForeign = await send({ path: `/transfers/${transfer}` }, token);
    expect(comparable(forForeign, transfer)).toEqual(comparable(forUnknown, missing));
  });

  test('is listed like the wallets of an owner without any', async () => {
    await scene();
    const token = await known.other();
    for (const query of ['', '&limit=1', '&cursor=7c9e6679-7425-40de-944b-e07fc1f90ae7']) {
      const foreign = await send({ path: `/wallets?ownerId=${owner}${query}` }, token);
      const nobody = await send({ path: `/wallets?ownerId=${randomUUID()}${query}` }, token);
      expect(comparable(foreign, owner)).toEqual(comparable(nobody, owner));
    }
  });

  test('is not reached with the idempotency key of its owner', async () => {
    const { wallet } = await scene();
    const key = { 'idempotency-key': randomUUID() };
    const deposit = { path: `/wallets/${wallet}/deposit`, body: { amount: '1' } };
    const first = await send(deposit, await known.owner(), key);
    expect(summary(first)).toBe('200');
    expect(summary(await send(deposit, await known.other(), key))).toBe('404 wallet-not-found');
    const repeat = await send(deposit, await known.owner(), key);
    expect([repeat.body, repeat.headers['idempotency-replayed']]).toEqual([first.body, 'true']);
  });
});

/** An answer without what differs between any two requests, and without the id that it quotes. */
function comparable({ status, headers, body }: Answer, id: string): object {
  const { 'x-request-id': _requestId, date: _date, ...others } = headers;
  const { instance: _instance, ...fields } = body;
  return {
    status,
    headers: others,
    body: JSON.parse(JSON.stringify(fields).replaceAll(id, 'ID')) as unknown,
  };
}

describe('a service with tokens', () => {
  test('knows an owner whatever the case of the subject', async () => {
    const { wallet } = await scene();
    const token = await issuing.token({ subject: owner.toUpperCase() });
    expect(summary(await send({ path: `/wallets/${wallet}` }, token))).toBe('200');
  });

  test('tells the principal of an event only to itself and to operators', async () => {
    const { wallet } = await scene();
    const operator = randomUUID();
    const ofOperator = await issuing.token({ subject: operator, roles: ['operator'] });
    await send({ path: `/wallets/${wallet}/close`, body: {} }, ofOperator);
    const principalsFor = async (token: string): Promise<unknown> => {
      const { body } = await send({ path: `/wallets/${wallet}/events` }, token);
      const events = body['items'] as readonly { readonly principal: string | null }[];
      return events.map(({ principal }) => principal);
    };
    expect(await principalsFor(await known.owner())).toEqual([owner, owner, null]);
    expect(await principalsFor(await known.operator())).toEqual([owner, owner, operator]);
  });

  test('deposits once under a key, whatever the case of the subject', async () => {
    const { wallet } = await scene();
    const key = { 'idempotency-key': randomUUID() };
    const deposit = { path: `/wallets/${wallet}/deposit`, body: { amount: '1' } };
    const first = await send(deposit, await issuing.token({ subject: owner.toUpperCase() }), key);
    const repeat = await send(deposit, await known.owner(), key);
    expect([repeat.body, repeat.headers['idempotency-replayed']]).toEqual([first.body, 'true']);
  });

  test('asks for a token before it reads anything, at every address of wallets and transfers', async () => {
    const bodies = { method: 'POST', headers: { 'content-type': 'text/plain' }, body: '{' };
    for (const path of ['/wallets', '/wallets/x/deposit', '/wallets/x/y/z', '/transfers', '/transfers/x']) {
      expect(summary(await service.client.send(path, bodies))).toBe('401 unauthorized');
      expect(summary(await service.client.send(path, { method: 'DELETE' }))).toBe('401 unauthorized');
      expect((await service.client.send(path, { method: 'HEAD' })).status).toBe(401);
    }
  });

  test('tells methods and documents without a token', async () => {
    const options = await service.client.send('/wallets', { method: 'OPTIONS' });
    expect([options.status, options.headers['allow']]).toEqual([204, 'POST, GET, HEAD, OPTIONS']);
    for (const path of ['/openapi.json', '/asyncapi.json', '/docs'])
      expect((await service.client.send(path)).status).toBe(200);
    expect(summary(await service.client.get('/elsewhere'))).toBe('404 not-found');
  });

  test('leaves the steps of sagas to its handlers, whatever the role of a caller', async () => {
    const { executor } = service.service;
    const scenes = await scene();
    const transferId = ShardedId.of(Transfer, scenes.transfer);
    const walletId = ShardedId.of(Wallet, scenes.wallet);
    const money = { amount: new Big(1), currency: 'EUR' };
    const before = service.contents();
    for (const principal of [{ name: owner }, { name: 'operator', roles: ['operator'] }]) {
      const steps = [
        executor.execute(principal, CompleteTransferAction, { transferId, destId: walletId, ...money }),
        executor.execute(principal, SettleTransferAction, { transferId }),
        executor.execute(principal, RefundTransferAction, { transferId, reason: 'wallet-closed' }),
        executor.execute(principal, NotifyRecipientAction, { walletId, recipient: 'ada', text: 'Hello' }),
      ];
      for (const step of await Promise.allSettled(steps))
        expect(step).toMatchObject({ status: 'rejected', reason: { code: 'access-denied' } });
    }
    expect(service.contents()).toEqual(before);
  });

  test('logs a request in one line, without its query, headers and body', async () => {
    const canary = 'c4n4ry';
    const path = `/wallets/%0a{}/deposit?x=${canary}`;
    const sent = { path, body: { amount: canary } };
    const { headers } = await send(sent, await known.owner(), { 'x-canary': canary });
    const lines = service.log
      .filter((line) => line.includes(headers['x-request-id'] ?? 'none'))
      .flatMap((line) => line.trimEnd().split('\n'))
      .map((line) => JSON.parse(line) as object);
    expect(lines).toMatchObject([{ msg: 'request', status: 400, path: '/wallets/\n{}/deposit' }]);
    expect(service.log.join('')).not.toContain(canary);
  });

  test('logs why a token is refused, but not the token', async () => {
    const token = await issuing.token({ subject: owner, audience: 'other-service' });
    const { body } = await send({ path: '/wallets' }, token);
    const requestId = String(body['instance']).replace('urn:uuid:', '');
    const lines = service.log
      .filter((line) => line.includes(requestId))
      .map((line) => JSON.parse(line) as object);
    expect(lines).toMatchObject([
      { msg: 'unauthorized', reason: 'ERR_JWT_CLAIM_VALIDATION_FAILED of aud' },
      { msg: 'request', status: 401 },
    ]);
    expect(service.log.join('')).not.toContain(token.split('.')[1]);
  });
});

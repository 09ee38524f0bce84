import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { checkChain } from '@framework/http/security';
import { lockedCount, withSession } from '../database-session.js';
import { type TestService, startTestService, stopTestService } from '../start-test-service.js';
import { type Answer, problem } from '../wallet-client.js';
import { TestIssuer, audience, issuer } from '../../../../packages/http/test/test-issuer.js';

const owner = randomUUID();
let service: TestService;
let issuing: TestIssuer;
let folder: string;
let file: string;

beforeAll(async () => {
  issuing = await TestIssuer.create();
  folder = await mkdtemp(join(tmpdir(), 'wallet-audit-'));
  await mkdir(join(folder, 'logs'));
  file = join(folder, 'logs', 'audit.jsonl');
  const keys = join(folder, 'jwks.json');
  await writeFile(keys, JSON.stringify(await issuing.keys()));
  const jwt = { issuer, audience, 'jwks-file': keys, algorithms: ['ES256'] };
  service = await startTestService({
    role: 'http',
    http: { limits: { 'per-principal': false } },
    security: { jwt, audit: { file, 'hash-chain': true } },
  });
});
afterAll(async () => {
  await stopTestService(service);
  await rm(folder, { recursive: true });
});

async function write(path: string, body: object | string, headers: object = {}): Promise<Answer> {
  return service.client.send(path, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${await issuing.token({ subject: owner })}`,
      ...headers,
    },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

async function openWallet(): Promise<string> {
  const wallet = { country: 'DE', ownerId: owner, currency: 'EUR', initialBalance: '10' };
  const { body } = await write('/wallets', wallet);
  return String(body['id']);
}

/** The lines after the first ones. */
async function linesSince(count: number): Promise<readonly Readonly<Record<string, unknown>>[]> {
  return (await lines()).slice(count);
}

async function lines(): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const text = await readFile(file, 'utf8');
  return text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

test('each write has a line with who has asked for what, and what became of it', async () => {
  const id = await openWallet();
  const { length } = await lines();
  const path = `/wallets/${id}/withdraw`;
  const keyed = { 'idempotency-key': 'once' };
  const done = await write(path, { amount: '2.50' }, keyed);
  await write(path, { amount: '2.50' }, keyed);
  await write(path, { amount: 99 });
  await write(path, 'not json');
  await write(path, { amount: '1' }, { authorization: 'Bearer stolen' });
  await write(`/wallets/${id}`, {});
  await write(`/wallets/${id}/reopen`, {});
  await service.client.get(`/wallets/${id}`);
  const common = { request: `POST ${path}`, address: '127.0.0.1', principal: owner };
  const input = { amount: '2.5' };
  expect(await linesSince(length)).toMatchObject([
    { ...common, input, status: 200, code: null, idempotencyKey: 'once', replayed: false },
    { ...common, input, status: 200, code: null, idempotencyKey: 'once', replayed: true },
    { ...common, input: { amount: '99' }, status: 422, code: 'insufficient-funds', idempotencyKey: null },
    { ...common, input: null, status: 400, code: 'bad-request' },
    { ...common, principal: null, input: null, status: 401, code: 'unauthorized' },
    {
      request: `POST /wallets/${id}`,
      principal: owner,
      input: null,
      status: 405,
      code: 'method-not-allowed',
    },
    { request: `POST /wallets/${id}/reopen`, principal: owner, input: null, status: 404, code: 'not-found' },
  ]);
  expect((await linesSince(length))[0]).toMatchObject({ requestId: done.headers['x-request-id'] });
});

test('a chain of many concurrent writes is whole', async () => {
  const id = await openWallet();
  const { length } = await lines();
  await Promise.all(Array.from({ length: 50 }, () => write(`/wallets/${id}/deposit`, { amount: '1' })));
  expect(await linesSince(length)).toHaveLength(50);
  expect((await checkChain(file)).faults).toEqual([]);
});

test('writes are refused while the audit log cannot be written, and reads go on', async () => {
  const id = await openWallet();
  const deposit = (): Promise<Answer> => write(`/wallets/${id}/deposit`, { amount: '1' });
  await rename(join(folder, 'logs'), join(folder, 'away'));
  // Those that come before the loss is noticed are committed.
  await expect.poll(deposit).toMatchObject(problem(503, 'audit-unavailable'));
  const authorization = `Bearer ${await issuing.token({ subject: owner })}`;
  expect(await service.client.send(`/wallets/${id}`, { headers: { authorization } })).toMatchObject({
    status: 200,
  });
  await mkdir(join(folder, 'logs'));
  await expect.poll(async () => (await deposit()).status, { timeout: 5_000 }).toBe(200);
  const { end } = await checkChain(join(folder, 'away', 'audit.jsonl'));
  expect((await checkChain(file, { before: end })).faults).toEqual([]);
  expect((await lines())[0]).toMatchObject({ request: `POST /wallets/${id}/deposit`, status: 200 });
});

test('a write whose client has left has a line, also if the service stops meanwhile', async () => {
  const id = await openWallet();
  const body = JSON.stringify({ amount: '1' });
  const head = [
    `POST /wallets/${id}/deposit HTTP/1.1`,
    'host: wallet',
    `authorization: Bearer ${await issuing.token({ subject: owner })}`,
    'content-type: application/json',
    `content-length: ${body.length}`,
  ];
  await withSession(service.global, async (session) => {
    await session.query('begin');
    await session.query('select from wallets where id = $1 for update', [id]);
    const { hostname, port } = new URL(service.url);
    const client = connect(Number(port), hostname);
    client.write(`${head.join('\r\n')}\r\n\r\n${body}`);
    await expect.poll(() => lockedCount(service.global)).toBe(1);
    client.resetAndDestroy();
    // It does not wait for the lock for ever.
    await service.stop();
  });
  expect((await lines()).at(-1)).toMatchObject({ request: `POST /wallets/${id}/deposit`, principal: owner });
});

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';

import { NoAnswerError, type WalletClientOptions, walletClient } from '../src/index.js';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** An answer, or what fails instead. */
type Turn = () => Response | Promise<Response>;

const wallet = { id: 'w', version: 2 };
const ok: Turn = () => Response.json(wallet);
const unreachable: Turn = () => Promise.reject(new TypeError('fetch failed'));

function refusal(status: number, code: string, headers: Readonly<Record<string, string>> = {}): Turn {
  const type = 'application/problem+json';
  return () => Response.json({ status, code }, { status, headers: { 'content-type': type, ...headers } });
}

/** An answer whose connection is cut before its end. */
const cut: Turn = () => {
  const body = new ReadableStream({
    pull: (controller) => {
      controller.enqueue(new TextEncoder().encode('{"id":'));
      controller.error(new TypeError('terminated'));
    },
  });
  return new Response(body, { status: 200 });
};

/** A client whose attempts are answered by these turns, one after the other, and the last one for ever. */
function clientOf(turns: readonly Turn[], options: Partial<WalletClientOptions> = {}) {
  const requests: Request[] = [];
  const client = walletClient({
    url: 'https://wallets.example/api/',
    fetch: async (request) => {
      requests.push(request.clone());
      const turn = turns[Math.min(requests.length, turns.length) - 1];
      if (turn === undefined) throw new Error('There is no turn');
      return turn();
    },
    ...options,
  });
  const path = { id: '0198c5a2-7b7e-7000-8000-5d2f4a6b8c0d' };
  return {
    requests,
    keys: () => requests.map(({ headers }) => headers.get('idempotency-key')),
    deposit: (key?: string) =>
      settled(
        client.POST('/wallets/{id}/deposit', {
          params: { path, ...(key !== undefined && { header: { 'Idempotency-Key': key } }) },
          body: { amount: '25.50' },
        }),
      ),
    read: (signal?: AbortSignal) =>
      settled(client.GET('/wallets/{id}', { params: { path }, ...(signal && { signal }) })),
  };
}

/** Waits for a result while time passes at once. */
async function settled<T>(running: Promise<T>): Promise<T> {
  running.catch(() => undefined);
  await vi.runAllTimersAsync();
  return running;
}

describe('a write', () => {
  test('is sent with a key, and below the path of the address', async () => {
    const { requests, deposit, keys } = clientOf([ok]);
    expect(await deposit()).toMatchObject({ data: wallet });
    expect(requests.map(({ method, url }) => `${method} ${url}`)).toEqual([
      'POST https://wallets.example/api/wallets/0198c5a2-7b7e-7000-8000-5d2f4a6b8c0d/deposit',
    ]);
    expect(keys()).toEqual([expect.stringMatching(/^[\da-f-]{36}$/)]);
  });

  test.each([
    ['is not reached', unreachable],
    ['is cut off from its answer', cut],
    ['is stale', refusal(409, 'stale-record')],
    ['comes too often', refusal(429, 'too-many-requests')],
    ['finds no shard', refusal(503, 'shard-unavailable')],
    ['has an unknown outcome', refusal(504, 'outcome-unknown')],
  ])('that %s is repeated with the same key and the same body', async (_what, failing) => {
    const { requests, deposit, keys } = clientOf([failing, failing, ok]);
    expect(await deposit()).toMatchObject({ data: wallet });
    expect(requests).toHaveLength(3);
    expect(new Set(keys()).size).toBe(1);
    const bodies = await Promise.all(requests.map((request) => request.text()));
    expect(new Set(bodies)).toEqual(new Set(['{"amount":"25.50"}']));
  });

  test('has a key of its own', async () => {
    const { deposit, keys } = clientOf([ok]);
    await deposit();
    await deposit();
    await deposit('mine');
    expect(new Set(keys()).size).toBe(3);
    expect(keys()[2]).toBe('mine');
  });

  test.each([
    [409, 'wallet-closed'],
    [422, 'insufficient-funds'],
    [412, 'precondition-failed'],
    [404, 'wallet-not-found'],
    [500, 'internal'],
  ])('that is refused with %i %s is not repeated', async (status, code) => {
    const { requests, deposit } = clientOf([refusal(status, code)]);
    expect(await deposit()).toMatchObject({ error: { code }, response: { status } });
    expect(requests).toHaveLength(1);
  });

  test('without any answer fails with its key', async () => {
    const { requests, deposit } = clientOf([unreachable], { attemptsMax: 3 });
    await expect(deposit('mine')).rejects.toThrow(NoAnswerError);
    await expect(deposit('mine')).rejects.toMatchObject({ idempotencyKey: 'mine' });
    expect(requests).toHaveLength(6);
  });

  test.each([
    ['a problem after an attempt without answer', [unreachable, refusal(503, 'shard-unavailable')]],
    ['a problem that is not repeated', [cut, refusal(401, 'unauthorized')]],
    ['an unknown outcome', [refusal(504, 'outcome-unknown')]],
    ['a success', [ok]],
  ])('tells its key with %s, so that it can be asked for again', async (_what, turns) => {
    const { deposit, keys } = clientOf(turns);
    const { response } = await deposit();
    expect(response.headers.get('idempotency-key')).toBe(keys()[0]);
    expect(new Set(keys()).size).toBe(1);
  });

  test('that is always refused resolves with the last problem', async () => {
    const { requests, deposit } = clientOf([refusal(503, 'shard-unavailable')], { attemptsMax: 3 });
    expect(await deposit()).toMatchObject({
      error: { code: 'shard-unavailable' },
      response: { status: 503 },
    });
    expect(requests).toHaveLength(3);
  });
});

test('the next attempt waits as long as the service asks for', async () => {
  const { requests, deposit } = clientOf([refusal(429, 'too-many-requests', { 'retry-after': '17' }), ok]);
  const startedMs = Date.now();
  await deposit();
  expect(requests).toHaveLength(2);
  expect(Date.now() - startedMs).toBe(17_000);
});

test('a problem is returned at once when the service asks for a longer wait than the caller allows', async () => {
  const { requests, deposit } = clientOf([refusal(503, 'shard-unavailable', { 'retry-after': '61' })]);
  const startedMs = Date.now();
  expect(await deposit()).toMatchObject({ response: { status: 503 } });
  expect(requests).toHaveLength(1);
  expect(Date.now()).toBe(startedMs);
});

test('an attempt that takes too long is repeated', async () => {
  const { requests, read } = clientOf([() => new Promise(() => undefined), ok], { attemptTimeoutMs: 1_000 });
  expect(await read()).toMatchObject({ data: wallet });
  expect(requests).toHaveLength(2);
});

test('a read has no idempotency key, and none in its error', async () => {
  const { keys, read } = clientOf([unreachable], { attemptsMax: 2 });
  await expect(read()).rejects.toMatchObject({ name: 'NoAnswerError', idempotencyKey: undefined });
  expect(keys()).toEqual([null, null]);
});

test('a caller can give up', async () => {
  const { requests, read } = clientOf([unreachable]);
  const reason = new Error('enough');
  await expect(read(AbortSignal.abort(reason))).rejects.toBe(reason);
  expect(requests.length).toBeLessThanOrEqual(1);
});

test('each attempt asks for a token', async () => {
  let count = 0;
  const { requests, read } = clientOf([refusal(503, 'shard-unavailable'), ok], {
    token: () => `t${++count}`,
  });
  await read();
  expect(requests.map(({ headers }) => headers.get('authorization'))).toEqual(['Bearer t1', 'Bearer t2']);
});

test('a write that gets no token for its second attempt fails with its key', async () => {
  const cause = new Error('log in again');
  const tokens = ['t1'];
  const { deposit, keys } = clientOf([cut], {
    token: () => tokens.pop() ?? Promise.reject(cause),
  });
  const error: unknown = await deposit().catch((reason: unknown) => reason);
  expect(error).toMatchObject({ name: 'NoAnswerError', idempotencyKey: keys()[0], cause });
  expect(keys()).toHaveLength(1);
});

test('a redirect is not followed', async () => {
  const { requests, read } = clientOf([ok]);
  await read();
  expect(requests.map(({ redirect }) => redirect)).toEqual(['error']);
});

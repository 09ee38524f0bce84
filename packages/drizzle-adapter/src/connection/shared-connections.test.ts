import { ShardIdentifier, ShardUnavailableError } from '@framework/core';
import { AsyncLocalStorage } from 'node:async_hooks';
import type pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

import { leftBehind } from '../../../core/test/left-behind.js';
import { type ConnectionSource, SharedConnections, adaptStatementNames } from './shared-connections.js';

const shard = ShardIdentifier.of(0, 0);
const other = ShardIdentifier.of(0, 1);
const busy = { isBusy: () => true };
const idle = { isBusy: () => false };
const broken = new Error('the connection is broken');
const request = new AsyncLocalStorage<string>();

/** A pool of numbered connections that records which ones it has lent, and how each was returned. */
class FakeSource implements ConnectionSource {
  readonly lent: number[] = [];
  /** The async contexts in which connections were lent. */
  readonly contexts: unknown[] = [];
  readonly returned: (readonly [client: number, error: unknown])[] = [];
  freeCount: number;
  refusal: unknown;
  #number = 0;

  constructor(freeCount: number) {
    this.freeCount = freeCount;
  }

  async use(_shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<void>): Promise<void> {
    const number = ++this.#number;
    this.contexts.push(request.getStore());
    this.freeCount--;
    if (this.refusal !== undefined) throw this.refusal;
    this.lent.push(number);
    const error = await work(number as unknown as pg.PoolClient).catch((failure: unknown) => failure);
    this.freeCount++;
    this.returned.push([number, error]);
    if (error !== undefined) throw error;
  }

  unavailable(on: ShardIdentifier, cause: unknown): Error {
    return new ShardUnavailableError(on, 'no connection could be had', { cause });
  }

  isSoundAfter(error: unknown): boolean {
    return error !== broken;
  }
}

/** A statement that is answered when the test says so; returns the connection on which it was sent. */
function send(connections: SharedConnections, on = shard) {
  const answer = Promise.withResolvers<void>();
  const sent = connections.share(on, async (client) => {
    await answer.promise;
    return client as unknown as number;
  });
  sent.catch(() => undefined);
  return { sent, answer: answer.resolve, fail: answer.reject };
}

function sendMany(connections: SharedConnections, count: number) {
  return Array.from({ length: count }, () => send(connections));
}

async function answersOf(statements: readonly ReturnType<typeof send>[]): Promise<readonly number[]> {
  for (const { answer } of statements) answer();
  return Promise.all(statements.map(({ sent }) => sent));
}

describe('shared connections', () => {
  test('are acquired outside any async context, because they outlive the request that opened them', async () => {
    const source = new FakeSource(2);
    const connections = new SharedConnections(source, busy);
    const contexts: unknown[] = [];
    await request.run('first', () =>
      connections.share(shard, async () => void contexts.push(request.getStore())),
    );
    expect(source.contexts).toEqual([undefined]);
    expect(contexts).toEqual(['first']);
  });

  test('carry one statement each while the process has time to spare', async () => {
    const source = new FakeSource(20);
    const connections = new SharedConnections(source, idle);
    const answered = await answersOf(sendMany(connections, 20));
    expect(new Set(answered).size).toBe(20);
  });

  test('grow to 4 while the process is busy, and to more only when each of them has 4 statements', async () => {
    const source = new FakeSource(20);
    const connections = new SharedConnections(source, busy);
    const few = sendMany(connections, 16);
    await Promise.resolve();
    expect(source.lent).toHaveLength(4);
    expect(connections.waitingCount).toBe(12);
    const another = send(connections);
    await Promise.resolve();
    expect(source.lent).toHaveLength(5);
    const counts = Map.groupBy(await answersOf([...few, another]), (client) => client);
    expect([...counts.values()].map(({ length }) => length)).toEqual([4, 4, 4, 4, 1]);
    expect(connections.waitingCount).toBe(0);
  });

  test('take more statements when the pool has no connection left', async () => {
    const source = new FakeSource(2);
    const connections = new SharedConnections(source, busy);
    const answered = await answersOf(sendMany(connections, 100));
    expect(new Set(answered)).toEqual(new Set([1, 2]));
  });

  test('stop taking statements after a while, so that they are returned even under load', async () => {
    let nowMs = 0;
    const spy = vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
    onTestFinished(() => spy.mockRestore());
    const source = new FakeSource(1);
    const connections = new SharedConnections(source, busy);
    let before = send(connections);
    for (; source.returned.length === 0 && nowMs < 60_000; nowMs += 40) {
      const next = send(connections);
      await answersOf([before]);
      before = next;
    }
    await answersOf([before]);
    expect(source.returned[0]).toEqual([1, undefined]);
    expect(nowMs).toBeLessThan(20_000);
  });

  test('are returned when no statement is in flight', async () => {
    const source = new FakeSource(1);
    const connections = new SharedConnections(source, busy);
    const [first, second] = [send(connections), send(connections)];
    await answersOf([first]);
    expect(source.returned).toEqual([]);
    await answersOf([second]);
    await Promise.resolve();
    expect(source.returned).toEqual([[1, undefined]]);
  });

  test('take no new statement while another caller waits for a connection of its own', async () => {
    const source = new FakeSource(1);
    const connections = new SharedConnections(source, busy);
    const before = send(connections);
    source.freeCount = -1;
    const after = send(connections);
    expect(await answersOf([before, after])).toEqual([1, 2]);
  });

  test('take no new statement after a connection error, and are destroyed once empty', async () => {
    const source = new FakeSource(1);
    const connections = new SharedConnections(source, busy);
    const [failing, behind] = [send(connections), send(connections)];
    failing.fail(broken);
    await expect(failing.sent).rejects.toBe(broken);
    expect(source.returned).toEqual([]);
    const next = send(connections);
    expect(await answersOf([behind, next])).toEqual([1, 2]);
    expect(source.returned).toContainEqual([1, broken]);
  });

  test('stay in use after an error that leaves the connection intact', async () => {
    const source = new FakeSource(1);
    const connections = new SharedConnections(source, busy);
    const [failing, behind] = [send(connections), send(connections)];
    failing.fail(new Error('a constraint'));
    await expect(failing.sent).rejects.toThrow('a constraint');
    expect(await answersOf([behind, send(connections)])).toEqual([1, 1]);
  });

  test('reject every waiting caller, each for its own shard, when no connection can be opened', async () => {
    const source = new FakeSource(1);
    source.refusal = new Error('no server');
    const connections = new SharedConnections(source, busy);
    const statements = [send(connections), send(connections, other)];
    const outcomes = await Promise.allSettled(statements.map(({ sent }) => sent));
    expect(outcomes).toMatchObject([
      { reason: { code: 'shard-unavailable', shard, cause: source.refusal } },
      { reason: { code: 'shard-unavailable', shard: other, cause: source.refusal } },
    ]);
    expect(connections.waitingCount).toBe(0);
  });
});

test('shared connections leave nothing behind, whether their statements succeed, fail or break them', async () => {
  const source = new FakeSource(20);
  const connections = new SharedConnections(source, busy);
  const left = await leftBehind(async () => {
    await answersOf(sendMany(connections, 10));
    const [sound, breaking] = sendMany(connections, 2);
    sound!.fail(new Error('refused'));
    breaking!.fail(broken);
    await Promise.allSettled([sound!.sent, breaking!.sent]);
    source.refusal = new Error('no connection');
    await expect(send(connections).sent).rejects.toMatchObject({ code: 'shard-unavailable' });
    source.refusal = undefined;
    source.freeCount = 20;
    connections.takeNoMore();
  });
  expect([left, connections.waitingCount]).toEqual([[], 0]);
});

/** The names under which statements with these texts are sent behind a pooler. */
function namesOf(...texts: readonly string[]): readonly unknown[] {
  const names: unknown[] = [];
  const client = { query: (query: { readonly name?: string }) => names.push(query.name) };
  adaptStatementNames(client as unknown as pg.ClientBase, true);
  for (const text of texts) client.query({ name: 'one name', text } as never);
  return names;
}

describe('the name of a statement behind a pooler', () => {
  test('has at most 63 bytes, and differs for texts with different ends', () => {
    const long = `select '${'€'.repeat(10_000)}`;
    const [one, another, again] = namesOf(`${long}1'`, `${long}2'`, `${long}1'`);
    expect(one).not.toBe(another);
    expect(again).toBe(one);
    expect(Buffer.byteLength(String(one))).toBeLessThanOrEqual(63);
  });

  test('stays the same however many others there are, of which not all are kept', () => {
    const clear = vi.spyOn(Map.prototype, 'clear');
    onTestFinished(() => clear.mockRestore());
    const texts = Array.from({ length: 5_000 }, (_item, index) => `select ${index}`);
    const names = namesOf(...texts, texts[0]!);
    expect(names.at(-1)).toBe(names[0]);
    expect(new Set(names).size).toBe(texts.length);
    expect(clear.mock.calls.length).toBeGreaterThanOrEqual(2);
  });
});

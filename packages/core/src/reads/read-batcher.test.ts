import { AsyncLocalStorage } from 'node:async_hooks';
import { describe, expect, test } from 'vitest';

import { settled } from '../../test/manual-clock.js';
import { global, openWallet } from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { systemClock } from '../clock.js';
import type { ModelSource } from '../storage/repository.js';
import { ShardUnavailableError } from '../storage/storage-errors.js';
import { ReadCombiner } from './read-batcher.js';

/** A source of wallets that records what it was asked for, and answers when a test lets it. */
class FakeSource implements ModelSource<Wallet> {
  readonly model = Wallet;
  readonly asked: (string | readonly string[])[] = [];
  readonly failures: unknown[] = [];
  readonly wallets = new Map<string, Wallet>();
  gate: Promise<void> | undefined;
  toModel: (wallet: Wallet) => Wallet = (wallet) => wallet;

  async readOne(id: string): Promise<Wallet | undefined> {
    this.asked.push(id);
    await this.gate;
    if (id === 'none') throw new Error('this is no id');
    return this.wallets.get(id);
  }

  async readSeveral(ids: readonly string[]): Promise<ReadonlyMap<string, () => Wallet>> {
    this.asked.push(ids);
    const failure = this.failures.shift();
    if (failure !== undefined) throw failure;
    const found = [...this.wallets].filter(([id]) => ids.includes(id));
    return new Map(found.map(([id, wallet]) => [id, () => this.toModel(wallet)]));
  }
}

function sourceOf(...ids: readonly string[]): FakeSource {
  const source = new FakeSource();
  for (const id of ids) source.wallets.set(id, openWallet());
  return source;
}

describe('reads that are combined', () => {
  test('are sent outside the async context of any reader', async () => {
    const request = new AsyncLocalStorage<string>();
    const source = sourceOf('a', 'b');
    const contexts: unknown[] = [];
    const readOne = source.readOne.bind(source);
    source.readOne = (id) => {
      contexts.push(request.getStore());
      return readOne(id);
    };
    const combiner = new ReadCombiner(source, systemClock);
    await request.run('first', async () => {
      await combiner.read('a');
      expect(request.getStore()).toBe('first');
    });
    expect(contexts).toEqual([undefined]);
  });

  test('return a separate object to each reader of the same model', async () => {
    const source = sourceOf('a');
    source.toModel = (wallet) => wallet.deposit(0n);
    const combiner = new ReadCombiner(source, systemClock);
    const [one, other] = await Promise.all([combiner.read('a'), combiner.read('a')]);
    expect(source.asked).toEqual([['a', 'a']]);
    expect(one).toEqual(other);
    expect(one).not.toBe(other);
  });

  test('fail only for those whose row cannot be decoded', async () => {
    const source = sourceOf('a', 'b');
    source.toModel = (wallet) => {
      if (wallet === source.wallets.get('a')) throw new Error('this is no wallet');
      return wallet;
    };
    const combiner = new ReadCombiner(source, systemClock);
    const [one, other] = await Promise.allSettled([combiner.read('a'), combiner.read('b')]);
    expect(one).toMatchObject({ status: 'rejected', reason: { message: 'this is no wallet' } });
    expect(other).toMatchObject({ status: 'fulfilled', value: source.wallets.get('b') });
    expect(source.asked).toEqual([['a', 'b']]);
  });

  test.each([
    ['alone', ['none']],
    ['beside others', ['none', 'a']],
  ])('fail only for those for whom the source throws at once: %s', async (_how, ids) => {
    const source = sourceOf('a');
    source.failures.push(new Error('one of these is no id'));
    source.readOne = (id) => {
      if (id === 'none') throw new Error('this is no id');
      return Promise.resolve(source.wallets.get(id));
    };
    const combiner = new ReadCombiner(source, systemClock);
    const [refused, ...others] = await Promise.allSettled(ids.map((id) => combiner.read(id)));
    expect(refused).toMatchObject({ status: 'rejected', reason: { message: 'this is no id' } });
    expect(others).toEqual(others.map(() => ({ status: 'fulfilled', value: source.wallets.get('a') })));
    expect(await combiner.read('a')).toBe(source.wallets.get('a'));
  });

  test('are sent as single reads when there is only one', async () => {
    const source = sourceOf('a');
    const combiner = new ReadCombiner(source, systemClock);
    expect(await combiner.read('a')).toBe(source.wallets.get('a'));
    expect(await combiner.read('b')).toBeUndefined();
    expect(source.asked).toEqual(['a', 'b']);
  });

  test('are those that come while one is running, and those that begin together', async () => {
    const source = sourceOf('a', 'b', 'c');
    const gate = Promise.withResolvers<void>();
    source.gate = gate.promise;
    const combiner = new ReadCombiner(source, systemClock);
    const first = combiner.read('a');
    await new Promise((resolve) => setTimeout(resolve, 0));
    const others = [combiner.read('b'), combiner.read('c'), combiner.read('x')];
    gate.resolve();
    expect(await first).toBe(source.wallets.get('a'));
    expect(await Promise.all(others)).toEqual([source.wallets.get('b'), source.wallets.get('c'), undefined]);
    expect(source.asked).toEqual(['a', ['b', 'c', 'x']]);
  });

  test('are at most 128 together', async () => {
    const source = sourceOf();
    const combiner = new ReadCombiner(source, systemClock);
    const ids = Array.from({ length: 257 }, (_unused, index) => `${index}`);
    await Promise.all(ids.map((id) => combiner.read(id)));
    expect(source.asked).toEqual([ids.slice(0, 128), ids.slice(128, 256), '256']);
  });

  test('do not wait for a statement that has been running for more than 100 ms', async () => {
    const source = sourceOf('a', 'b', 'c');
    const gate = Promise.withResolvers<void>();
    source.gate = gate.promise;
    let nowMs = 1_000;
    const combiner = new ReadCombiner(source, { elapsedMs: () => nowMs });
    const silent = combiner.read('a');
    await new Promise((resolve) => setTimeout(resolve, 0));
    nowMs = 1_100;
    const waiting = combiner.read('b');
    await Promise.resolve();
    expect(source.asked).toEqual(['a']);
    nowMs = 1_101;
    const late = combiner.read('c');
    expect(await Promise.all([waiting, late])).toEqual([source.wallets.get('b'), source.wallets.get('c')]);
    expect(source.asked).toEqual(['a', ['b', 'c']]);
    gate.resolve();
    await silent;
    expect(await combiner.read('a')).toBe(source.wallets.get('a'));
  });

  test('are sent in one statement after the other while these are quick, however long reads keep coming', async () => {
    const source = sourceOf('a');
    let nowMs = 1_000;
    const combiner = new ReadCombiner(source, { elapsedMs: () => nowMs });
    const reads: Promise<unknown>[] = [];
    let [openCount, openMax] = [0, 0];
    source.readOne = async (id) => {
      openMax = Math.max(openMax, ++openCount);
      nowMs += 60;
      if (reads.length < 10) reads.push(combiner.read('a'));
      await settled();
      openCount--;
      return source.wallets.get(id);
    };
    await combiner.read('a');
    await expect.poll(() => reads.length).toBe(10);
    await Promise.all(reads);
    expect(openMax).toBe(1);
  });

  test('wait for the latest statement, even if an earlier one, for which nobody waits any more, ends meanwhile', async () => {
    const source = sourceOf('a', 'b', 'c');
    const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    source.gate = first.promise;
    let nowMs = 1_000;
    const combiner = new ReadCombiner(source, { elapsedMs: () => nowMs });
    const silent = combiner.read('a');
    await settled();
    nowMs = 1_101;
    source.gate = second.promise;
    const late = combiner.read('b');
    await settled();
    first.resolve();
    await silent;
    const waiting = combiner.read('c');
    await settled();
    expect(source.asked).toEqual(['a', 'b']);
    second.resolve();
    expect(await Promise.all([late, waiting])).toEqual([source.wallets.get('b'), source.wallets.get('c')]);
    expect(source.asked).toEqual(['a', 'b', 'c']);
  });

  test.each([
    ['is no id', new Error('one of them is no id')],
    ['is damaged', new ShardUnavailableError(global, 'invalid page', { kind: 'damaged' })],
  ])('are done one by one when one of them %s, so that only the culprit fails', async (_what, failure) => {
    const source = sourceOf('a', 'b');
    source.failures.push(failure);
    const combiner = new ReadCombiner(source, systemClock);
    const [one, none, two] = await Promise.allSettled(['a', 'none', 'b'].map((id) => combiner.read(id)));
    expect([one, two].map((outcome) => outcome?.status)).toEqual(['fulfilled', 'fulfilled']);
    expect(none).toMatchObject({ status: 'rejected' });
  });

  test('fail together when the shard cannot be reached', async () => {
    const source = sourceOf('a', 'b');
    const unavailable = new ShardUnavailableError(global, 'it is down');
    source.failures.push(unavailable);
    const combiner = new ReadCombiner(source, systemClock);
    const outcomes = await Promise.allSettled(['a', 'b'].map((id) => combiner.read(id)));
    expect(outcomes).toEqual([
      { status: 'rejected', reason: unavailable },
      { status: 'rejected', reason: unavailable },
    ]);
    expect(source.asked).toHaveLength(1);
    expect(await combiner.read('a')).toBe(source.wallets.get('a'));
  });
});

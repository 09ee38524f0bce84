// oxlint-disable-next-line no-restricted-imports -- makes values of another realm
import vm from 'node:vm';
import { describe, expect, test } from 'vitest';

import { executorOf, mexico, openWallet, principal } from '../../test/test-executor.js';
import { systemClock } from '../clock.js';
import { TransientStorageError } from '../storage/storage-errors.js';
import { Action, FrameworkAction } from './action.js';
import { copyOfValue } from '../model/exact-json.js';

const lost = new TransientStorageError(mexico, 'the connection was lost');

describe('a change of the arguments after the call of execute', () => {
  test.each([
    ['without a key', {}],
    ['with a key, which is searched for first', { idempotencyKey: 'key-1' }],
  ])('is seen by no attempt %s', async (_how, configuration) => {
    const seen: unknown[] = [];
    const running = executorOf(async (plan, params) => {
      seen.push(structuredClone(params));
      plan().add(openWallet(mexico));
    });
    running.manager(mexico).persistFailures.push(lost);
    const params = { amount: 5, items: [{ name: 'pen' }], dates: [new Date(5)], more: {} };
    const asked = structuredClone(params);
    const done = running.execute(params, configuration);
    Object.assign(params, { amount: 500, more: 'much' });
    params.items[0]!.name = 'car';
    params.items.push({ name: 'house' });
    params.dates[0]!.setTime(9);
    await done;
    expect(seen).toEqual([asked, asked]);
    const [record] = running.driver.committed;
    expect(JSON.parse(record!.action.params)).toEqual(JSON.parse(JSON.stringify(asked)));
  });

  test("affects neither the record's shard nor whether the plan may span shards", async () => {
    const { execute, driver } = executorOf(async () => undefined);
    const params = { id: openWallet(mexico).id };
    const done = execute(params);
    params.id = openWallet().id;
    await done;
    expect(driver.committed).toMatchObject([{ shard: mexico }]);

    const both = executorOf(async (plan) => plan().addAll([openWallet(), openWallet(mexico)]));
    const configuration = { allowCrossShard: false };
    const refused = both.execute(undefined, configuration);
    configuration.allowCrossShard = true;
    await expect(refused).rejects.toMatchObject({ code: 'cross-shard' });
  });
});

test('an attempt sees the params as they were passed, whatever the previous attempt did with them', async () => {
  const seen: unknown[] = [];
  const running = executorOf(async (plan, params) => {
    const { queue } = params as { queue: string[] };
    seen.push(queue.splice(0));
    plan().add(openWallet(mexico));
  });
  running.manager(mexico).persistFailures.push(lost);
  const queue = ['a', 'b'];
  await running.execute({ queue });
  expect(seen).toEqual([
    ['a', 'b'],
    ['a', 'b'],
  ]);
  expect(queue).toEqual(['a', 'b']);
});

test('an action is performed with the params that are recorded, even if getters return something else each time', async () => {
  const seen: unknown[] = [];
  const running = executorOf(async (plan, params) => {
    seen.push(params);
    plan().add(openWallet(mexico));
  });
  let reads = 0;
  await running.execute({
    get amount() {
      return ++reads;
    },
  });
  expect(seen).toEqual([{ amount: 1 }]);
  expect(running.driver.committed).toMatchObject([{ action: { params: '{"amount":1}' } }]);
});

describe('params that JSON cannot represent', () => {
  class UnwrittenAction extends Action<unknown> {
    protected async perform(): Promise<void> {}
  }
  FrameworkAction()(UnwrittenAction);
  const levels = 50_000;
  /** Params nested to this depth. */
  const nested = (within: (inner: unknown) => unknown): unknown => {
    let value: unknown = 1;
    for (let level = 0; level < levels; level++) value = within(value);
    return value;
  };

  test.each([
    ['a list with a field', Object.assign(['a'], { more: 1 })],
    ['a list with a symbol', Object.assign(['a'], { [Symbol('more')]: 1 })],
    ['a list with a hole', Object.assign([], { 1: 'a' })],
    ['a subclass of Array', new (class extends Array<string> {})()],
    [`${levels} levels of lists`, nested((inner) => [inner])],
    [`${levels} levels of fields`, nested((inner) => ({ inner }))],
    [`${levels} levels of maps`, nested((inner) => new Map([['inner', inner]]))],
    [`${levels} levels of keys of maps`, nested((inner) => new Map([[inner, 'inner']]))],
    [`${levels} levels of sets`, nested((inner) => new Set([inner]))],
  ])('are refused although they are copied first: %s', async (_what, params) => {
    const { executor } = executorOf(async () => undefined, { actions: [new UnwrittenAction(systemClock)] });
    await expect(executor.execute(principal, UnwrittenAction, params)).rejects.toMatchObject({
      code: 'unstorable-value',
    });
  });
});

describe('a copy of params', () => {
  test('includes lists and plain objects of another realm', () => {
    const params = vm.runInNewContext('({ list: ["a", { b: [1] }] })') as { list: [string, { b: number[] }] };
    const copy = copyOfValue(params);
    expect(copy).toStrictEqual({ list: ['a', { b: [1] }] });
    copy.list[1].b.push(2);
    copy.list.pop();
    expect(JSON.stringify(params)).toBe('{"list":["a",{"b":[1]}]}');
  });

  test('has copies of everything that can be changed, and the same instances of classes', () => {
    const { id } = openWallet();
    const symbol = Symbol('key');
    const odd = JSON.parse('{ "__proto__": { "own": [1] } }') as { readonly __proto__: { own: number[] } };
    const params = {
      id,
      list: [1, [2]],
      dates: { due: new Date(0) },
      map: new Map([['a', [1]]]),
      set: new Set(['a']),
      bytes: new Uint8Array([1]),
      buffer: Buffer.from('a'),
      bare: Object.assign(Object.create(null) as object, { a: [1] }),
      odd,
      related: Object.create(Object.create(null) as object) as object,
      named: new (class {
        hasOwnProperty(): boolean {
          return false;
        }
      })(),
      none: [null, undefined],
      [symbol]: { a: 1 },
    };
    const copy = copyOfValue(params);
    expect(copy).toStrictEqual(params);
    for (const key of ['id', 'related', 'named'] as const) expect(copy[key]).toBe(params[key]);
    expect(Object.getPrototypeOf(copy.odd)).toBe(Object.prototype);
    for (const key of ['list', 'dates', 'map', 'set', 'bytes', 'buffer', 'bare', 'odd'] as const)
      expect(copy[key]).not.toBe(params[key]);
    expect(copy.list[1]).not.toBe(params.list[1]);
    expect(copy.dates.due).not.toBe(params.dates.due);
    expect(copy.map.get('a')).not.toBe(params.map.get('a'));
    odd['__proto__'].own.push(2);
    expect(JSON.stringify(copy.odd)).toBe('{"__proto__":{"own":[1]}}');
    copy.buffer[0] = 0;
    expect(params.buffer.toString()).toBe('a');
  });

  test('contains itself where the params do', () => {
    const params: { self?: object; readonly twice: readonly object[] } = { twice: [] };
    const part = {};
    Object.assign(params, { self: params, twice: [part, part] });
    const copy = copyOfValue(params);
    expect(copy.self).toBe(copy);
    expect(copy.twice[0]).toBe(copy.twice[1]);
    expect(copy.twice[0]).not.toBe(part);
  });

  test('contains lists, maps and sets that contain themselves', () => {
    const params = { list: [] as unknown[], map: new Map<string, unknown>(), set: new Set<unknown>() };
    params.list.push(params.list);
    params.map.set('self', params.map);
    params.set.add(params.set);
    const copy = copyOfValue(params);
    expect(copy.list[0]).toBe(copy.list);
    expect(copy.map.get('self')).toBe(copy.map);
    expect([...copy.set]).toEqual([copy.set]);
    expect(copy.set.has(copy.set)).toBe(true);
    for (const key of ['list', 'map', 'set'] as const) expect(copy[key]).not.toBe(params[key]);
  });
});

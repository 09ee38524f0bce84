import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import {
  type TestExecutor,
  executorOf,
  global,
  mexico,
  openWallet,
  principal,
} from '../../test/test-executor.js';
import { Wallet } from '../../test/wallet.js';
import { Action } from '../action/action.js';
import { FrameworkAction } from '../action/framework-action.js';
import type { ExecutorOptions } from '../action/executor-options.js';
import type { ExecutionConfiguration } from '../action/execution-configuration.js';
import type { Principal } from '../action/principal.js';
import { systemClock } from '../clock.js';
import { FrameworkException } from '../errors/framework-exception.js';
import { parseFrameworkConfig } from '../sharding/framework-config.js';
import {
  CommitOutcomeUnknownException,
  ShardUnavailableException,
  StaleRecordException,
  TransientStorageException,
} from '../errors/storage-exceptions.js';
import { InvariantViolation } from '../errors/invariant-violation.js';
import type { Id } from '../id/id.js';
import { shardedIdCodec } from '../id/id-codec.js';
import type { ShardedId } from '../id/sharded-id.js';
import type { DatabaseRegistry } from '../sharding/database-registry.js';

const key: ExecutionConfiguration = { idempotencyKey: 'key-1' };
const unsearched: ExecutionConfiguration = { ...key, idempotencyKeySearch: 'nowhere' };
const unavailable = new ShardUnavailableException(mexico, 'it is down');

/** Counts how often it was performed, and gives that with the amount as its result. */
class CountAction extends Action<
  { readonly amount: bigint },
  { readonly count: number; readonly amount: bigint }
> {
  count = 0;

  protected async perform(
    _principal: Principal,
    { amount }: { readonly amount: bigint },
  ): Promise<{ readonly count: number; readonly amount: bigint }> {
    return { count: ++this.count, amount };
  }
}

const wholeNumber = z.codec(z.string(), z.bigint(), { decode: (text) => BigInt(text), encode: String });
FrameworkAction({
  params: z.object({ amount: wholeNumber }),
  result: z.object({ count: z.int(), amount: wholeNumber }),
})(CountAction);

function counting(options: Partial<ExecutorOptions> = {}): TestExecutor & {
  readonly action: CountAction;
  readonly count: (amount: bigint, configuration?: ExecutionConfiguration) => Promise<unknown>;
} {
  const action = new CountAction(systemClock);
  const running = executorOf(async () => undefined, { ...options, actions: [action] });
  const count = (amount: bigint, configuration = key): Promise<unknown> =>
    running.executor.execute(principal, CountAction, { amount }, configuration);
  return { ...running, action, count };
}

describe('an execution with an idempotency key', () => {
  test('is performed once, and repeats get its result with the same types', async () => {
    const { count, action, driver } = counting();
    let replays = 0;
    const configuration = { ...key, onReplayed: () => void replays++ };
    expect(await count(2n ** 70n, configuration)).toEqual({ count: 1, amount: 2n ** 70n });
    expect(replays).toBe(0);
    expect(await count(2n ** 70n, configuration)).toEqual({ count: 1, amount: 2n ** 70n });
    expect([replays, action.count, driver.committed.length]).toEqual([1, 1, 1]);
  });

  test('stores key, fingerprint and result with the effect', async () => {
    const { count, driver } = counting({ idempotency: { keyLifetimeMs: 5_000 } });
    await count(7n);
    expect(driver.committed).toMatchObject([
      {
        shard: global,
        key: {
          key: 'key-1',
          namespace: 'com.example.wallet',
          principal: 'alice',
          fingerprint: expect.stringMatching(/^[0-9a-f]{64}$/),
          result: '{"count":1,"amount":"7"}',
          lifetimeMs: 5_000,
        },
      },
    ]);
  });

  test('is refused when other params were executed under the key', async () => {
    const { count, driver } = counting();
    await count(1n);
    for (const configuration of [key, unsearched])
      await expect(count(2n, configuration)).rejects.toMatchObject({ code: 'idempotency-key-reused' });
    expect(driver.committed).toHaveLength(1);
  });

  test('has no key at all without one', async () => {
    const { count, driver, manager } = counting();
    await count(1n, {});
    expect(driver.committed[0]).not.toHaveProperty('key');
    expect(manager(global).keys.waits).toEqual([]);
  });

  test.each(['', 'k'.repeat(256), 'a\u0000b', '\ud800'])('refuses the key %j', async (idempotencyKey) => {
    const { count, action } = counting();
    await expect(count(1n, { idempotencyKey })).rejects.toMatchObject({ code: 'invalid-idempotency-key' });
    expect(action.count).toBe(0);
  });

  test('takes a key of 255 characters', async () => {
    const { count } = counting();
    expect(await count(1n, { idempotencyKey: 'k'.repeat(255) })).toMatchObject({ count: 1 });
  });

  test('refuses a principal whose name no index could hold', async () => {
    const { executor } = counting();
    const name = 'p'.repeat(256);
    await expect(executor.execute({ name }, CountAction, { amount: 1n }, key)).rejects.toMatchObject({
      code: 'limit-exceeded',
    });
  });

  test('needs the schema of a result, and writes nothing without', async () => {
    const { execute, driver } = executorOf(async (plan) => plan().add(openWallet()));
    await expect(execute(null, key)).rejects.toMatchObject({ code: 'invariant-violation' });
    expect(driver.committed).toEqual([]);
  });

  test('needs no schema for undefined', async () => {
    const { execute, driver } = executorOf(async (plan) => void plan().add(openWallet()));
    await execute(null, key);
    expect(await execute(null, key)).toBeUndefined();
    expect(driver.committed).toHaveLength(1);
  });

  test('does not store a result beyond the limit of payloads', async () => {
    const { count, driver } = counting({ limits: { payloadCharactersMax: 20 } });
    await expect(count(1n)).rejects.toMatchObject({ code: 'limit-exceeded' });
    expect(driver.committed).toEqual([]);
  });

  test('does not span shards', async () => {
    const { execute, driver } = executorOf(
      async (plan) => void plan().addAll([openWallet(global), openWallet(mexico)]),
    );
    await expect(execute(null, { ...key, allowCrossShard: true })).rejects.toBeInstanceOf(InvariantViolation);
    await expect(execute(null, key)).rejects.toMatchObject({ code: 'cross-shard' });
    expect(driver.committed).toEqual([]);
  });
});

async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return Buffer.from(digest).toString('hex');
}

/** The same action as different deployments declare it: each with a schema of its own. */
function deployed(params: z.ZodType<Record<string, unknown>>, databases?: DatabaseRegistry) {
  class DeployedAction extends Action<Record<string, unknown>, void> {
    protected async perform(): Promise<void> {}
  }
  FrameworkAction({ name: 'deployed', params })(DeployedAction);
  const actions = [new DeployedAction(systemClock)];
  const running = executorOf(async () => undefined, { ...(databases && { databases }), actions });
  const execute = (given: Record<string, unknown>): Promise<void> =>
    running.executor.execute(principal, DeployedAction, given, key);
  return { databases: databases ?? running.databases, driver: running.driver, execute };
}

describe('a request that is repeated after a deployment', () => {
  const before = z.object({ sku: z.string(), count: z.int() });

  test.each<[string, z.ZodType<Record<string, unknown>>, Record<string, unknown>]>([
    ['a field with a default', before.extend({ color: z.string().default('red') }), { color: 'red' }],
    ['an optional field', before.extend({ color: z.string().optional() }), { color: undefined }],
    ['another order of its fields', z.object({ count: z.int(), sku: z.string() }), {}],
    ['a default of a field that it had', before.extend({ count: z.int().default(1) }), {}],
  ])('is recognised when that gave the params %s', async (_what, after, added) => {
    const old = deployed(before);
    await old.execute({ sku: 'a', count: 1 });
    const next = deployed(after, old.databases);
    await next.execute({ sku: 'a', count: 1, ...added });
    expect(old.driver.committed).toHaveLength(1);
  });

  test('is another request when the added field says something else than its default', async () => {
    const old = deployed(before);
    await old.execute({ sku: 'a', count: 1 });
    const next = deployed(before.extend({ color: z.string().default('red') }), old.databases);
    await expect(next.execute({ sku: 'a', count: 1, color: 'blue' })).rejects.toMatchObject({
      code: 'idempotency-key-reused',
    });
  });

  test.each<[string, string]>([
    ['with its fields in the order of the schema', '{"sku":"a","count":1,"color":"red"}'],
    ['before a field with a default was added', '{"sku":"a","count":1}'],
  ])('is recognised by the fingerprint of the first version of the framework, %s', async (_what, params) => {
    const schema = before.extend({ color: z.string().default('red') });
    const { driver, execute } = deployed(schema);
    await execute({ sku: 'a', count: 1, color: 'red' });
    const stored = driver.committed[0]!.key!;
    const fingerprint = await sha256(JSON.stringify(['deployed', params]));
    expect(fingerprint).not.toBe(stored.fingerprint);
    Object.assign(stored, { fingerprint });
    await execute({ sku: 'a', count: 1, color: 'red' });
    expect(driver.committed).toHaveLength(1);
    await expect(execute({ sku: 'a', count: 2, color: 'red' })).rejects.toMatchObject({
      code: 'idempotency-key-reused',
    });
  });
});

describe('another request under the same key', () => {
  const amount = { amount: z.int() };

  test.each<[string, z.ZodType<Record<string, unknown>>, Record<string, unknown>, Record<string, unknown>]>([
    [
      'another variant of a union, told apart by a default',
      z.union([
        z.object({ kind: z.literal('deposit').default('deposit'), ...amount }),
        z.object({ kind: z.literal('withdraw').default('withdraw'), ...amount }),
      ]),
      { kind: 'deposit', amount: 1 },
      { kind: 'withdraw', amount: 1 },
    ],
    [
      'another default field of a union',
      z.union([z.strictObject({ x: z.int().default(1) }), z.strictObject({ y: z.int().default(1) })]),
      { x: 1 },
      { y: 1 },
    ],
    [
      'another default of the two of an intersection',
      z.intersection(z.object({ x: z.int().default(1) }), z.object({ x: z.int().default(2) })),
      { x: 1 },
      { x: 2 },
    ],
    [
      'the default of an optional field',
      z.object({ limit: z.int().default(100).optional() }),
      {},
      { limit: 100 },
    ],
    [
      'the default before it is read of an optional field',
      z.object({ limit: z.int().prefault(100).optional() }),
      {},
      { limit: 100 },
    ],
    ['the default of a field that may be undefined', z.object({ any: z.any().default(1) }), {}, { any: 1 }],
  ])('is refused when it names %s', async (_what, schema, one, other) => {
    const { driver, execute } = deployed(schema);
    await execute(one);
    await expect(execute(other)).rejects.toMatchObject({ code: 'idempotency-key-reused' });
    expect(driver.committed).toHaveLength(1);
  });

  test.each<[string, z.ZodType<Record<string, unknown>>]>([
    ['a record', z.record(z.string(), z.unknown())],
    ['an object that keeps other fields', z.looseObject({ a: z.int() })],
  ])('is refused when its params differ in a field of %s that zod does not write', async (_what, schema) => {
    const { driver, execute } = deployed(schema);
    const params = JSON.parse('{"a":1,"__proto__":{"x":1}}') as Record<string, unknown>;
    await expect(execute(params)).rejects.toMatchObject({
      code: 'invalid-params',
      issues: [{ path: '__proto__' }],
    });
    expect(driver.committed).toEqual([]);
  });

  test('may have fields that are named as what every object has', async () => {
    const { driver, execute } = deployed(z.looseObject({ a: z.int() }));
    await execute({ a: 1, constructor: 1, toString: 'x' });
    await execute({ a: 1, constructor: 1, toString: 'x' });
    expect(driver.committed).toHaveLength(1);
    await expect(execute({ a: 1 })).rejects.toMatchObject({ code: 'idempotency-key-reused' });
  });
});

describe('a request without a schema', () => {
  test('does not get the result of one whose params differ only in what JSON does not hold', async () => {
    class GrantAction extends Action<{ readonly roles: ReadonlySet<string> }, void> {
      granted: string[] = [];
      protected async perform(_principal: Principal, { roles }: { readonly roles: ReadonlySet<string> }) {
        this.granted.push(...roles);
      }
    }
    const action = new GrantAction(systemClock);
    const { executor } = executorOf(async () => undefined, { actions: [action] });
    for (const role of ['reader', 'admin']) {
      const roles = new Set([role]);
      await expect(executor.execute(principal, GrantAction, { roles }, key)).rejects.toMatchObject({
        code: 'unstorable-value',
        path: 'GrantAction params.roles',
      });
    }
    expect(action.granted).toEqual([]);
  });
});

describe('a result', () => {
  class Receipt {
    readonly number: number = 1;
    readonly note: string = 'a';
  }

  test.each<[string, z.ZodType<Receipt>, string]>([
    ['has a field that its schema lacks', z.object({ number: z.int() }) as never, 'ReceiptAction result'],
    ['is an instance of a class', z.object({ number: z.int(), note: z.string() }), 'ReceiptAction result'],
  ])('that %s is not stored, because a repeat would get another one', async (_what, result, path) => {
    class ReceiptAction extends Action<null, Receipt> {
      protected async perform(): Promise<Receipt> {
        return new Receipt();
      }
    }
    FrameworkAction({ result })(ReceiptAction);
    const { executor, driver } = executorOf(async () => undefined, {
      actions: [new ReceiptAction(systemClock)],
    });
    await expect(executor.execute(principal, ReceiptAction, null, key)).rejects.toMatchObject({
      code: 'unstorable-value',
      path: expect.stringContaining(path) as string,
    });
    expect(driver.committed).toEqual([]);
    await expect(executor.execute(principal, ReceiptAction, null)).resolves.toBeInstanceOf(Receipt);
  });
});

/** Executes an action that works once, and refuses its own repetition. */
function onceOnly(id: ShardedId<Wallet>): TestExecutor & { readonly refusal: Error } {
  const refusal = new Error('refused by the rules');
  let performed = 0;
  const running = executorOf(async (plan) => {
    if (++performed > 1) throw refusal;
    plan().update(new Wallet({ ...storedFields, id }));
  });
  return { ...running, refusal };
}

const storedFields = {
  state: 'OPENED',
  createdDate: new Date(0),
  ownerId: 'owner-1',
  balance: 1n,
  version: 1,
} as const;

describe('a repeat that the rules refuse', () => {
  test.each([key, unsearched])('gets the first result', async (configuration) => {
    const { id } = openWallet(mexico);
    const { execute } = onceOnly(id);
    await execute({ id }, configuration);
    expect(await execute({ id }, configuration)).toBeUndefined();
  });

  test('is looked for on the shards that the params name, and nowhere else', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    await execute({ id }, unsearched);
    await execute({ id }, unsearched);
    expect([manager(global).keys.waits, manager(mexico).keys.waits]).toEqual([[], [undefined]]);
  });

  test('is looked for in every database when the params name no shard', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    await execute({}, unsearched);
    await execute({}, unsearched);
    expect([manager(global).keys.waits, manager(mexico).keys.waits]).toEqual([[100], [100]]);
  });

  test('is not called refused when its shard cannot tell', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    await execute({ id }, unsearched);
    manager(mexico).keys.findFailures.push(unavailable);
    await expect(execute({ id }, unsearched)).rejects.toBe(unavailable);
  });

  test('is answered by the shard of its effect, however long that takes and whatever the others do', async () => {
    const { id } = openWallet(mexico);
    const { execute, manager } = onceOnly(id);
    const params = { id, other: openWallet(global).id };
    await execute(params, unsearched);
    manager(global).keys.findFailures.push(unavailable);
    expect(await execute(params, unsearched)).toBeUndefined();
    // Nobody waits for the others when the key is found.
    manager(global).keys.find = () => new Promise(() => undefined);
    expect(await execute(params, unsearched)).toBeUndefined();
    expect(manager(mexico).keys.waits).toEqual([undefined, undefined]);
  });

  test.each([unavailable, new TransientStorageException(mexico, 'the connection was lost')])(
    'is not called refused when one of the shards that it names cannot tell (%s)',
    async (failure) => {
      const { id } = openWallet(mexico);
      const { execute, manager } = onceOnly(id);
      const params = { id, other: openWallet(global).id };
      await execute(params, unsearched);
      manager(mexico).keys.findFailures.push(failure);
      await expect(execute(params, unsearched)).rejects.toMatchObject({
        code: 'shard-unavailable',
        shard: mexico,
      });
    },
  );

  test('is refused as before when there was no first one', async () => {
    const { id } = openWallet(mexico);
    const { execute, refusal } = onceOnly(id);
    await execute({ id }, unsearched);
    await expect(execute({ id }, { idempotencyKey: 'key-2' })).rejects.toBe(refusal);
  });
});

/** Reads a wallet in Mexico, and changes it the first time. */
function linked(repeated: () => unknown): TestExecutor & { readonly once: () => Promise<unknown> } {
  const wallet = new Wallet({ ...storedFields, id: openWallet(mexico).id });
  let performed = 0;
  class LinkedAction extends Action<{ readonly id: Id<Wallet> }, unknown> {
    protected async perform(): Promise<unknown> {
      // As every repository does to read.
      running.databases.transactionManager(mexico);
      if (++performed > 1) return repeated();
      this.plan().update(wallet);
      return 'paid';
    }
  }
  const params = z.object({ id: shardedIdCodec(Wallet) });
  FrameworkAction({ params, result: z.unknown() })(LinkedAction);
  const running: TestExecutor = executorOf(async () => undefined, {
    actions: [new LinkedAction(systemClock)],
  });
  const { id } = openWallet(global);
  return { ...running, once: () => running.executor.execute(principal, LinkedAction, { id }, key) };
}

describe('a repeat whose effect is on a shard that its params do not name', () => {
  test.each<[string, () => unknown]>([
    [
      'refused by the rules',
      () => {
        throw new InvariantViolation('insufficient funds');
      },
    ],
    ['with nothing left to do', () => 'nothing to do'],
  ])(
    'gets the first result, %s, although the first search passed that shard over',
    async (_what, repeated) => {
      const { once, manager, driver } = linked(repeated);
      expect(await once()).toBe('paid');
      manager(mexico).keys.findFailures.push(unavailable);
      expect(await once()).toBe('paid');
      expect(await once()).toBe('paid');
      expect(driver.committed).toHaveLength(1);
      manager(mexico).keys.findFailures.push(unavailable, unavailable);
      await expect(once()).rejects.toBe(unavailable);
    },
  );

  test('is recorded where its params say when there was nothing to do the first time either', async () => {
    const running: TestExecutor = executorOf(async () => {
      running.databases.transactionManager(mexico);
      return undefined;
    });
    const { driver, execute, manager } = running;
    await execute({ id: openWallet(global).id }, key);
    expect(driver.committed).toMatchObject([{ shard: global }]);
    expect(manager(mexico).keys.waits).toEqual([100, undefined]);
  });
});

describe('storage that fails', () => {
  test('elsewhere does not stop a keyed execution', async () => {
    const { count, manager } = counting();
    manager(mexico).keys.findFailures.push(unavailable);
    expect(await count(1n)).toMatchObject({ count: 1 });
  });

  test('on the shard of the effect is not searched after', async () => {
    const { count, manager } = counting();
    manager(global).persistFailures.push(unavailable);
    await expect(count(1n)).rejects.toBe(unavailable);
    expect(manager(global).keys.waits).toHaveLength(1);
  });

  test('by a bug is not passed over', async () => {
    const { count, manager } = counting();
    const bug = new InvariantViolation('a bug');
    manager(mexico).keys.findFailures.push(bug);
    await expect(count(1n)).rejects.toBe(bug);
  });

  test('with an unknown outcome is answered truthfully when the request is repeated', async () => {
    const { count, manager, driver } = counting();
    const unknown = new CommitOutcomeUnknownException(global, 'action-1');
    const persist = manager(global).persist.bind(manager(global));
    manager(global).persist = async (changes) => {
      await persist(changes);
      throw unknown;
    };
    manager(global).outcomes.push(unknown);
    await expect(count(1n)).rejects.toBe(unknown);
    expect(await count(1n)).toMatchObject({ count: 1 });
    expect(driver.committed).toHaveLength(1);
  });

  test('with stale rows to the end is searched: another process may have been faster', async () => {
    const { count, manager, driver } = counting();
    const stale = new StaleRecordException('Wallet', 'wallet-1', 1);
    const persist = manager(global).persist.bind(manager(global));
    manager(global).persist = async (changes) => {
      await persist(changes);
      throw stale;
    };
    expect(await count(1n, { ...key, retry: { attemptsMax: 1 } })).toMatchObject({ count: 1 });
    expect(driver.committed).toHaveLength(1);
  });
});

test('expired keys are swept after every so many keyed commits of a shard', async () => {
  const { count, manager } = counting({ idempotency: { commitsPerSweep: 3, sweepRowsMax: 10 } });
  for (let index = 0; index < 7; index++) await count(1n, { idempotencyKey: `key-${index}` });
  await count(1n, { idempotencyKey: 'key-0' });
  await count(1n, {});
  expect(manager(global).keys.sweeps).toEqual([10, 10]);
  expect(manager(mexico).keys.sweeps).toEqual([]);
});

describe('a key of a handler', () => {
  const handledEvent = { handler: 'notify', eventId: 'event-1', shard: mexico };

  test('is stored in a namespace that no configuration can have, with its event, and does not expire', async () => {
    const { count, driver } = counting({ idempotency: { keyLifetimeMs: 5_000 } });
    expect(await count(1n, key)).toMatchObject({ count: 1 });
    expect(await count(2n, { ...key, handledEvent })).toMatchObject({ count: 2 });
    expect(await count(2n, { ...key, handledEvent })).toMatchObject({ count: 2 });
    expect(await count(1n, key)).toMatchObject({ count: 1 });
    const [client, handler] = driver.committed;
    expect(client!.key).toMatchObject({ namespace: 'com.example.wallet', source: undefined });
    expect(handler!.key).toMatchObject({
      namespace: 'com.example.wallet#handlers',
      source: '1/0 event-1 notify',
    });
    expect(handler!.action.namespace).toBe('com.example.wallet');
    expect(handler!.key!.lifetimeMs).toBeGreaterThan(50 * 365 * 86_400_000);
    expect(codeOf(() => parseFrameworkConfig({ framework: { namespace: 'a#handlers' } }))).toBe(
      'invalid-configuration',
    );
  });
});

function codeOf(work: () => unknown): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return FrameworkException.find(error)?.code;
  }
}

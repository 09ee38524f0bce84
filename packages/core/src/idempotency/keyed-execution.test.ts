import { describe, expect, onTestFinished, test, vi } from 'vitest';
import * as z from 'zod';

import { CountAction, countingExecutor, key, unavailable, unsearched } from '../../test/counting-executor.js';
import { executorOf, global, mexico, openWallet, principal } from '../../test/test-executor.js';
import { Action, FrameworkAction } from '../action/action.js';
import { systemClock } from '../clock.js';
import { checkNamespace } from '../config/framework-config.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import {
  CommitOutcomeUnknownError,
  StaleRecordError,
  StorageFailureError,
} from '../storage/storage-errors.js';

describe('an execution with an idempotency key', () => {
  test('is performed once, and repeats get its result with the same types', async () => {
    const { count, action, driver } = countingExecutor();
    let replays = 0;
    const configuration = { ...key, onReplayed: () => void replays++ };
    expect(await count(2n ** 70n, configuration)).toEqual({ count: 1, amount: 2n ** 70n });
    expect(replays).toBe(0);
    expect(await count(2n ** 70n, configuration)).toEqual({ count: 1, amount: 2n ** 70n });
    expect([replays, action.count, driver.committed.length]).toEqual([1, 1, 1]);
  });

  test.each(['throws', 'rejects'])(
    'is repeated once with its result if the hook for repeats %s',
    async (how) => {
      const { count } = countingExecutor();
      const warnings: unknown[] = [];
      const keep = (warning: Error): void => void warnings.push(warning.cause);
      process.on('warning', keep);
      onTestFinished(() => void process.off('warning', keep));
      const failure = new Error('metrics are down');
      let calls = 0;
      const fail = (): void => {
        calls++;
        if (how === 'throws') throw failure;
        return Promise.reject(failure) as unknown as undefined;
      };
      await count(1n);
      for (const configuration of [key, unsearched])
        expect(await count(1n, { ...configuration, onReplayed: fail })).toEqual({
          count: 1,
          amount: 1n,
        });
      await vi.waitFor(() => expect(warnings).toEqual([failure, failure]));
      expect(calls).toBe(2);
    },
  );

  test('stores key, fingerprint and result with the effect', async () => {
    const { count, driver } = countingExecutor({ idempotency: { keyLifetimeMs: 5_000 } });
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

  test('keeps its key for 30 days by default', async () => {
    const { count, driver } = countingExecutor();
    await count(7n);
    expect(driver.committed[0]?.key?.lifetimeMs).toBe(30 * 86_400_000);
  });

  test('is refused when other params were executed under the key', async () => {
    const { count, driver, manager } = countingExecutor();
    await count(1n);
    for (const configuration of [key, unsearched]) {
      const { waits } = manager(global).keys;
      waits.length = 0;
      await expect(count(2n, configuration)).rejects.toMatchObject({ code: 'idempotency-key-reused' });
      // After that, no earlier effect is searched for.
      expect(waits).toEqual([100]);
    }
    expect(driver.committed).toHaveLength(1);
  });

  test('differs from one without a key, which neither stores nor searches for a key', async () => {
    const { count, driver, manager } = countingExecutor();
    await count(1n, {});
    expect(driver.committed[0]).not.toHaveProperty('key');
    expect(manager(global).keys.waits).toEqual([]);
  });

  test.each(['', 'k'.repeat(256), 'a\u0000b', '\ud800'])('refuses the key %j', async (idempotencyKey) => {
    const { count, action } = countingExecutor();
    await expect(count(1n, { idempotencyKey })).rejects.toMatchObject({ code: 'invalid-idempotency-key' });
    expect(action.count).toBe(0);
  });

  test('accepts a key of 255 characters', async () => {
    const { count } = countingExecutor();
    expect(await count(1n, { idempotencyKey: 'k'.repeat(255) })).toMatchObject({ count: 1 });
  });

  test('refuses a principal whose name is too long for an index', async () => {
    const { executor } = countingExecutor();
    const name = 'p'.repeat(256);
    await expect(executor.execute({ name }, CountAction, { amount: 1n }, key)).rejects.toMatchObject({
      code: 'limit-exceeded',
    });
  });

  test('needs the schema of a result, and writes nothing without it', async () => {
    const { execute, driver } = executorOf(async (plan) => plan().add(openWallet()));
    await expect(execute(null, key)).rejects.toMatchObject({ code: 'invariant-violation' });
    expect(driver.committed).toEqual([]);
  });

  test('needs no schema for a result that is undefined', async () => {
    const { execute, driver } = executorOf(async (plan) => void plan().add(openWallet()));
    await execute(null, key);
    expect(await execute(null, key)).toBeUndefined();
    expect(driver.committed).toHaveLength(1);
  });

  test('does not store a result beyond the limit for payloads', async () => {
    const { count, driver } = countingExecutor({ limits: { payloadCharactersMax: 20 } });
    await expect(count(1n)).rejects.toMatchObject({ code: 'limit-exceeded' });
    expect(driver.committed).toEqual([]);
  });

  test('does not span shards', async () => {
    const { execute, driver } = executorOf(
      async (plan) => void plan().addAll([openWallet(global), openWallet(mexico)]),
    );
    await expect(execute(null, { ...key, allowCrossShard: true })).rejects.toBeInstanceOf(
      InvariantViolationError,
    );
    await expect(execute(null, key)).rejects.toMatchObject({ code: 'cross-shard' });
    expect(driver.committed).toEqual([]);
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
  ])('that %s is not stored, because a repeat would get a different one', async (_what, result, path) => {
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

test('a key that was taken, and has expired before it is looked up, is taken by another attempt', async () => {
  const { count, manager, driver } = countingExecutor();
  const persist = manager(global).persist.bind(manager(global));
  manager(global).persist = async () => {
    manager(global).persist = persist;
    return 'key-taken';
  };
  expect(await count(1n, unsearched)).toMatchObject({ count: 2 });
  expect(driver.committed).toHaveLength(1);
});

describe('a failure of storage', () => {
  test.each([unavailable, new StorageFailureError(mexico, 'the database refused a statement (XX002)')])(
    'elsewhere does not stop a keyed execution: %s',
    async (failure) => {
      const { count, manager } = countingExecutor();
      manager(mexico).keys.findFailures.push(failure);
      expect(await count(1n)).toMatchObject({ count: 1 });
    },
  );

  test('on the shard of the effect is followed by no search', async () => {
    const { count, manager } = countingExecutor();
    manager(global).persistFailures.push(unavailable);
    await expect(count(1n)).rejects.toBe(unavailable);
    expect(manager(global).keys.waits).toHaveLength(1);
  });

  test('caused by a bug is not ignored', async () => {
    const { count, manager } = countingExecutor();
    const bug = new InvariantViolationError('a bug');
    manager(mexico).keys.findFailures.push(bug);
    await expect(count(1n)).rejects.toBe(bug);
  });

  test('with an unknown outcome is answered truthfully when the request is repeated', async () => {
    const { count, manager, driver } = countingExecutor();
    const unknown = new CommitOutcomeUnknownError(global, 'action-1');
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

  test('caused by stale rows in every attempt is followed by a search for an earlier effect', async () => {
    const { count, manager, driver } = countingExecutor();
    const stale = new StaleRecordError('Wallet', 'wallet-1', 1);
    const persist = manager(global).persist.bind(manager(global));
    manager(global).persist = async (changes) => {
      await persist(changes);
      throw stale;
    };
    expect(await count(1n, { ...key, retry: { attemptsMax: 1 } })).toMatchObject({ count: 1 });
    expect(driver.committed).toHaveLength(1);
  });
});

test('expired keys are swept after a number of commits with a key on a shard', async () => {
  const { count, manager } = countingExecutor({ idempotency: { commitsPerSweep: 3, sweepRowsMax: 10 } });
  for (let index = 0; index < 7; index++) await count(1n, { idempotencyKey: `key-${index}` });
  await count(1n, { idempotencyKey: 'key-0' });
  await count(1n, {});
  expect(manager(global).keys.sweeps).toEqual([10, 10]);
  expect(manager(mexico).keys.sweeps).toEqual([]);
});

describe('a key of a handler', () => {
  const handledEvent = { handler: 'notify', eventId: 'event-1', shard: mexico };

  test('is stored in a namespace that no configuration can have, with its event, and does not expire', async () => {
    const { count, driver } = countingExecutor({ idempotency: { keyLifetimeMs: 5_000 } });
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
    expect(() => checkNamespace(handler!.key!.namespace)).toThrow(
      expect.objectContaining({ code: 'invalid-configuration' }) as Error,
    );
  });
});

import { AsyncLocalStorage } from 'node:async_hooks';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import * as z from 'zod';

import { FakeRepository } from '../../test/fake-repository.js';
import { Address } from '../../test/order.js';
import {
  ResultAction,
  TestAction,
  executorOf,
  global,
  mexico,
  openWallet,
  principal,
} from '../../test/test-executor.js';
import { VirtualClock } from '../../test/virtual-clock.js';
import { Wallet } from '../../test/wallet.js';
import { ShardedId } from '../id/id.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { ModelEvent } from '../model/model-event.js';
import { ShardUnavailableError } from '../storage/storage-errors.js';
import { ActionRegistry } from './action-registry.js';
import { Action } from './action.js';
import type { ExecutionConfiguration } from './execution-configuration.js';
import type { Plan } from './plan.js';

const clock = new VirtualClock('2026-01-01T00:00:00Z');

describe('execute', () => {
  test('commits what perform staged and returns its result', async () => {
    const wallet = openWallet(mexico);
    const { execute, driver } = executorOf(async (plan) => plan().add(wallet));
    expect(await execute()).toMatchObject({ id: wallet.id, version: 1 });
    expect(driver.committed).toMatchObject([
      { shard: mexico, changes: [{ kind: 'add' }], events: [{ type: 'WalletOpenedEvent' }] },
    ]);
  });

  test('writes nothing when perform throws, and throws the same error', async () => {
    const failure = new Error('the rules refuse it');
    const running = executorOf(async (plan) => {
      plan().add(openWallet());
      throw failure;
    });
    await expect(running.execute()).rejects.toBe(failure);
    expect(running.driver.committed).toEqual([]);
    expect(running.clock.sleeps).toEqual([]);
  });

  test('treats a perform that throws at once like one that rejects', async () => {
    const failure = new Error('not even a promise');
    const { execute } = executorOf(() => {
      throw failure;
    });
    await expect(execute()).rejects.toBe(failure);
  });

  test.each([
    ['the shard that its params name', () => ({ wallets: [{ id: openWallet(mexico).id }] }), mexico],
    [
      'the first of several that they name',
      () => ({ to: openWallet(mexico).id, from: openWallet().id }),
      global,
    ],
    [
      'the default shard when they name one that is not configured',
      () => ({ id: openWallet(ShardIdentifier.of(9, 9)).id }),
      global,
    ],
  ])('records an action that stages nothing on %s', async (_where, params, shard) => {
    const { execute, driver } = executorOf(async () => null);
    await execute(params());
    expect(driver.committed).toMatchObject([{ shard, changes: [] }]);
  });

  test('records an action that stages nothing, but looked for an unconfigured shard, on the default shard', async () => {
    const { execute, driver, databases } = executorOf(async () => {
      expect(() => databases.transactionManager(ShardIdentifier.of(9, 9))).toThrow('not configured');
      return 'it is not ours';
    });
    expect(await execute()).toBe('it is not ours');
    expect(driver.committed).toMatchObject([{ shard: global, changes: [] }]);
  });

  test('needs no other shard than the one that the params name', async () => {
    const { execute, manager } = executorOf(async () => 'read');
    manager(global).persistFailures.push(new ShardUnavailableError(global, 'it is down'));
    expect(await execute({ id: openWallet(mexico).id })).toBe('read');
  });

  test('records an action that stages nothing on the default shard', async () => {
    const { execute, driver } = executorOf(async () => 'nothing to do');
    expect(await execute({ a: 1 })).toBe('nothing to do');
    expect(driver.committed).toMatchObject([
      { shard: global, changes: [], events: [], action: { name: 'TestAction', params: '{"a":1}' } },
    ]);
  });

  test('commits models without events with an empty list of events', async () => {
    const id = ShardedId.generate(Address, mexico);
    const { execute, driver } = executorOf(async (plan) =>
      plan().add(new Address({ id, state: 'KNOWN', city: 'Riga' })),
    );
    await execute();
    expect(driver.committed).toMatchObject([{ shard: mexico, changes: [{ kind: 'add' }], events: [] }]);
  });

  test('refuses an action that is not registered', async () => {
    class OtherAction extends Action<null, null> {
      protected async perform(): Promise<null> {
        return null;
      }
    }
    const { executor } = executorOf(async () => null);
    await expect(executor.execute(principal, OtherAction, null)).rejects.toMatchObject({
      code: 'unknown-action',
    });
  });

  test('runs the actions of a registry', async () => {
    const { executor } = executorOf(async () => null, {
      actions: new ActionRegistry([new TestAction(clock, async (_plan, params) => params)]),
    });
    expect(await executor.execute(principal, TestAction, 'given')).toBe('given');
  });

  test('keeps the plans of 100 executions of one instance separate', async () => {
    const { execute, driver } = executorOf(async (plan, params) => {
      const count = params as number;
      for (let step = 0; step < 3; step++) {
        await Promise.resolve();
        plan().add(openWallet(global, BigInt(count)));
      }
      return plan();
    });
    const plans = await Promise.all(Array.from({ length: 100 }, (_item, index) => execute(index)));
    expect(new Set(plans).size).toBe(100);
    expect(driver.committed).toHaveLength(100);
    for (const { action, changes } of driver.committed) {
      expect(changes.map(({ model }) => (model as Wallet).balance)).toEqual(
        Array(3).fill(BigInt(action.params)),
      );
    }
  });

  test('performs with the given principal, and with a copy of the params that contains the same ids', async () => {
    const params = { walletId: openWallet().id };
    const seen: unknown[] = [];
    class SeeingAction extends Action<unknown> {
      protected async perform(...given: readonly unknown[]): Promise<void> {
        seen.push(...given);
      }
    }
    const { executor } = executorOf(async () => null, { actions: [new SeeingAction(clock)] });
    await executor.execute(principal, SeeingAction, params);
    expect(seen[0]).toBe(principal);
    expect(seen[1]).toEqual(params);
    expect(seen[1]).not.toBe(params);
    expect(seen[1]).toHaveProperty(
      'walletId',
      expect.toSatisfy((id) => id === params.walletId),
    );
  });
});

describe('several shards', () => {
  test('are refused before anything is written', async () => {
    const { execute, driver } = executorOf(async (plan) =>
      plan().addAll([openWallet(mexico), openWallet(global)]),
    );
    await expect(execute()).rejects.toMatchObject({ code: 'cross-shard', shards: [global, mexico] });
    expect(driver.committed).toEqual([]);
  });

  test('commit in their order under one action id when the caller allows it', async () => {
    const { execute, driver } = executorOf(async (plan) =>
      plan().addAll([openWallet(mexico), openWallet(global)]),
    );
    await execute(null, { allowCrossShard: true });
    expect(driver.committed.map(({ shard }) => shard)).toEqual([global, mexico]);
    expect(new Set(driver.committed.map(({ action }) => action.id)).size).toBe(1);
    for (const { changes, events } of driver.committed) {
      expect(events.map(({ modelId }) => modelId)).toEqual(changes.map(({ model }) => model.id.value));
    }
  });

  test('are not written at all when one of them is not configured', async () => {
    const unknown = ShardIdentifier.of(9, 9);
    const { execute, driver } = executorOf(async (plan) =>
      plan().addAll([openWallet(global), openWallet(unknown)]),
    );
    await expect(execute(null, { allowCrossShard: true })).rejects.toMatchObject({
      code: 'unknown-shard',
      shard: unknown,
    });
    expect(driver.committed).toEqual([]);
  });
});

test('an executor refuses repositories of two models with the same name in the log', () => {
  class Purse extends Wallet {
    static readonly modelName = 'Wallet';
  }
  const repositories = [new FakeRepository(Wallet), new FakeRepository(Purse)];
  expect(() => executorOf(async () => null, { repositories })).toThrow(
    expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining('modelName') }),
  );
});

describe('two event classes with one event_type', () => {
  class Noted extends ModelEvent<Wallet> {
    static readonly eventType = 'wallet.noted';
    static readonly payload = z.object({});
  }
  class AlsoNoted extends ModelEvent<Wallet> {
    static readonly eventType = 'wallet.noted';
    static readonly payload = z.object({});
  }
  /** Attaches an event of a class to a new wallet. */
  const noting = async (plan: () => Plan, eventClass: unknown): Promise<void> => {
    const wallet = openWallet();
    const Note = eventClass as typeof Noted;
    plan().add(wallet.close(new Note(wallet.id.value, Wallet)));
  };

  test('are not both staged', async () => {
    const { execute, driver } = executorOf(noting);
    await execute(Noted);
    await execute(Noted);
    await expect(execute(AlsoNoted)).rejects.toMatchObject({ code: 'invariant-violation' });
    expect(driver.committed).toHaveLength(2);
  });

  test('are refused when one is claimed for a handler and the other one is staged', async () => {
    const { executor, execute, driver } = executorOf(noting);
    executor.claimEventTypes([AlsoNoted]);
    await expect(execute(Noted)).rejects.toMatchObject({ code: 'invariant-violation' });
    expect(driver.committed).toEqual([]);
    expect(() => executor.claimEventTypes([Noted])).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }),
    );
    await execute(AlsoNoted);
  });
});

test('an executor refuses two repositories of one model', () => {
  const repositories = [new FakeRepository(Wallet), new FakeRepository(Wallet)];
  expect(() => executorOf(async () => null, { repositories })).toThrow(
    expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining('Wallet') }),
  );
});

test('a limit that is given as undefined keeps its default', async () => {
  const limits = { payloadCharactersMax: undefined } as unknown as { readonly payloadCharactersMax: number };
  const { execute } = executorOf(async () => null, { limits });
  await expect(execute('x'.repeat(262_144))).rejects.toMatchObject({
    code: 'limit-exceeded',
    maximum: 262_144,
  });
});

describe('a listener of commits', () => {
  const retry = { isRetryable: () => true };

  test.each<[string, ExecutionConfiguration, ExecutionConfiguration]>([
    ['without a key', {}, {}],
    ['under keys', { idempotencyKey: 'key-1' }, { idempotencyKey: 'key-2' }],
  ])('is called with the shard of each commit until it is removed: %s', async (_what, one, other) => {
    const { execute, executor } = executorOf(
      async (plan) => void plan().add(openWallet(mexico)),
      {},
      ResultAction,
    );
    const heard: unknown[] = [];
    const end = executor.onCommit((shard) => heard.push(shard));
    await execute(null, one);
    expect(heard).toEqual([mexico]);
    end();
    await execute(null, other);
    expect(heard).toEqual([mexico]);
  });

  test('is not called for a repeat that finds its key taken', async () => {
    const { execute, executor } = executorOf(
      async (plan) => void plan().add(openWallet(mexico)),
      {},
      ResultAction,
    );
    const heard: unknown[] = [];
    executor.onCommit((shard) => heard.push(shard));
    const configuration: ExecutionConfiguration = {
      idempotencyKey: 'key-1',
      checkKeyEverywhere: false,
    };
    await execute(null, configuration);
    await execute(null, configuration);
    expect(heard).toEqual([mexico]);
  });

  test('is called with the shards that an execution had written when it failed on a later shard', async () => {
    const { execute, executor, manager } = executorOf(async (plan) =>
      plan().addAll([openWallet(global), openWallet(mexico)]),
    );
    manager(mexico).persistFailures.push(new ShardUnavailableError(mexico, 'it is down'));
    const heard: unknown[] = [];
    executor.onCommit((shard) => heard.push(shard));
    await expect(execute(null, { allowCrossShard: true })).rejects.toMatchObject({ code: 'partial-commit' });
    expect(heard).toEqual([global]);
  });

  test.each<[string, (boolean | Error)[], ExecutionConfiguration]>([
    ['when its answer is lost', [true], {}],
    ['when the log can be read only at the second attempt', [new Error('not yet'), true], { retry }],
    ['when the log knows of it after the rules have refused another attempt', [false, true], {}],
  ])('is called with the shard of a commit %s', async (_when, outcomes, configuration) => {
    let runs = 0;
    const { execute, executor, manager } = executorOf(async () => {
      if (++runs === 2) throw new Error('overdrawn');
    });
    manager(global).answersToLose = 1;
    manager(global).outcomes.push(...outcomes);
    const heard: unknown[] = [];
    executor.onCommit((shard) => heard.push(shard));
    await execute(null, configuration);
    expect(heard).toEqual([global]);
  });

  test('is called with the shard whose log shows that an attempt on several shards was committed there', async () => {
    const { execute, executor, manager } = executorOf(async (plan) =>
      plan().addAll([openWallet(global), openWallet(mexico)]),
    );
    manager(global).answersToLose = 1;
    manager(global).outcomes.push(new Error('not yet'), true);
    const heard: unknown[] = [];
    executor.onCommit((shard) => heard.push(shard));
    await expect(execute(null, { allowCrossShard: true, retry })).rejects.toMatchObject({
      code: 'partial-commit',
    });
    expect(heard).toEqual([global]);
  });

  test.each<[string, (failure: Error) => unknown]>([
    [
      'throws',
      (failure) => {
        throw failure;
      },
    ],
    ['rejects', (failure) => Promise.reject(failure)],
  ])(
    'that %s fails neither the execution, whose commit has happened, nor the other listeners',
    async (_how, fail) => {
      const { execute, executor, driver } = executorOf(async (plan) => plan().add(openWallet()));
      const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
      onTestFinished(() => warn.mockRestore());
      const heard: unknown[] = [];
      const failure = new Error('not listening');
      executor.onCommit(() => fail(failure));
      executor.onCommit((shard) => heard.push(shard));
      await execute();
      expect(driver.committed).toHaveLength(1);
      expect(heard).toEqual([global]);
      expect(warn).toHaveBeenCalledExactlyOnceWith(
        expect.objectContaining({ name: 'FrameworkWarning', cause: failure }),
      );
    },
  );
});

describe('work that is done for many executions', () => {
  test('is done outside the async context of any of them', async () => {
    const request = new AsyncLocalStorage<string>();
    const contexts: unknown[] = [];
    const running = executorOf(
      async (plan, params) =>
        plan().update((await running.wallets.getById((params as Wallet).id)).deposit(1n)),
      { groupCommit: true },
    );
    const { id, createdDate } = openWallet();
    const wallet = running.wallets.store(
      new Wallet({ id, createdDate, state: 'OPENED', ownerId: 'owner-1', balance: 1n, version: 1 }),
    );
    const manager = running.manager(global);
    const [persist, persistAll] = [manager.persist.bind(manager), manager.persistAll.bind(manager)];
    manager.persist = (changes) => {
      contexts.push(request.getStore());
      return persist(changes);
    };
    manager.persistAll = (group) => {
      contexts.push(request.getStore());
      return persistAll(group);
    };
    await request.run('first', () => running.execute(wallet));
    await request.run('second', () => Promise.all([running.execute(wallet), running.execute(wallet)]));
    expect(new Set(contexts)).toEqual(new Set([undefined]));
  });
});

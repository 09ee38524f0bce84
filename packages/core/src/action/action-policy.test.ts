import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { holdCommits } from '../../test/hold-commits.js';
import { ManualClock, settled } from '../../test/manual-clock.js';
import {
  type TestExecutor,
  executorOf,
  global,
  openWallet,
  principal as alice,
  storedWallet,
} from '../../test/test-executor.js';
import { VirtualClock } from '../../test/virtual-clock.js';
import { Wallet } from '../../test/wallet.js';
import type { Clock } from '../clock.js';
import { AccessDeniedError } from '../errors/action-errors.js';
import { type ShardedId, shardedIdCodec } from '../id/id.js';
import { EntityNotFoundError, StaleRecordError, TransientStorageError } from '../storage/storage-errors.js';
import type { ExecutorOptions } from './action-executor.js';
import { Action, type ActionPolicy, type Principal } from './action.js';
import type { ExecutionConfiguration } from './execution-configuration.js';

interface OfWallet {
  readonly walletId: ShardedId<Wallet>;
}

interface Wallets {
  getById(id: ShardedId<Wallet>): Promise<Wallet>;
}

/** Adds 1 to a wallet, for those whom the test's policy lets through. */
class DepositAction extends Action<OfWallet, bigint> {
  static readonly params = z.object({ walletId: shardedIdCodec(Wallet) });
  static readonly result = z.codec(z.string(), z.bigint(), { decode: BigInt, encode: String });
  override readonly policy: ActionPolicy<OfWallet>;
  readonly #wallets: Wallets;
  readonly performed: OfWallet[] = [];

  constructor(clock: Clock, wallets: Wallets, policy: ActionPolicy<OfWallet>) {
    super(clock);
    this.#wallets = wallets;
    this.policy = policy;
  }

  /** Code of an action that its policy calls. */
  stageTooEarly(): void {
    this.plan().add(openWallet());
  }

  protected async perform(_principal: Principal, params: OfWallet): Promise<bigint> {
    this.performed.push(params);
    const wallet = await this.#wallets.getById(params.walletId);
    return this.plan().update(wallet.deposit(1n)).balance;
  }
}

function ownerOnly(wallets: Wallets): ActionPolicy<OfWallet> {
  return {
    authorize: async ({ principal, params: { walletId } }) => {
      const { ownerId } = await wallets.getById(walletId);
      if (ownerId !== principal.name) throw new EntityNotFoundError('Wallet', walletId.value);
    },
  };
}

const owner: Principal = { name: 'owner-1', roles: ['customer'], claims: { iss: 'https://id.example.com' } };
const clock = new VirtualClock('2026-01-01T00:00:00Z');

type Asked = Parameters<ActionPolicy<OfWallet>['authorize']>[0];

/** An executor of a {@link DepositAction} with one wallet, and everything that its policy was asked. */
function policed(
  authorize: (request: Asked, running: TestExecutor, action: DepositAction) => Promise<void> | void,
  options: Partial<ExecutorOptions> = {},
) {
  const asked: Asked[] = [];
  const policy: ActionPolicy<OfWallet> = {
    authorize: (request) => {
      asked.push(request);
      return authorize(request, running, action);
    },
  };
  const lazily: Wallets = { getById: (id) => running.wallets.getById(id) };
  const action = new DepositAction(clock, lazily, policy);
  const running: TestExecutor = executorOf(async () => null, { ...options, actions: [action] });
  const wallet = storedWallet(running);
  const deposit = (configuration?: ExecutionConfiguration, by: Principal = owner): Promise<bigint> =>
    running.executor.execute(by, DepositAction, { walletId: wallet.id }, configuration);
  return { ...running, action, asked, wallet, deposit };
}

const byOwner = (request: Asked, { wallets }: TestExecutor): Promise<void> | void =>
  ownerOnly(wallets).authorize(request);

async function byBalance({ params }: Asked, { wallets }: TestExecutor): Promise<void> {
  const { balance } = await wallets.getById(params.walletId);
  if (balance > 100n) throw new AccessDeniedError('Only wallets of 100 are filled');
}

describe('the policy of an action', () => {
  test('is asked before perform, with the principal and the params', async () => {
    const { deposit, asked, wallet } = policed((_request, _running, { performed }) => {
      expect(performed).toEqual([]);
    });
    expect(await deposit()).toBe(101n);
    expect(asked).toEqual([{ principal: owner, params: { walletId: wallet.id }, handledEvent: undefined }]);
    expect(asked[0]?.principal).toBe(owner);
  });

  test('refuses an execution with its own error, before anything is performed or written', async () => {
    const denied = new AccessDeniedError('Only owners deposit');
    const { deposit, action, driver, clock: passed } = policed(() => Promise.reject(denied));
    await expect(deposit()).rejects.toBe(denied);
    expect(action.performed).toEqual([]);
    expect(driver.committed).toEqual([]);
    expect(passed.sleeps).toEqual([]);
  });

  test('may throw at once', async () => {
    const denied = new AccessDeniedError('Only owners deposit');
    const { deposit, driver } = policed(() => {
      throw denied;
    });
    await expect(deposit()).rejects.toBe(denied);
    expect(driver.committed).toEqual([]);
  });

  test('costs no read if perform needs the same model, and both get the same object', async () => {
    const seen: Wallet[] = [];
    const { deposit, wallets, asked } = policed(async ({ params }, running) => {
      seen.push(await running.wallets.getById(params.walletId));
      seen.push(await running.wallets.getById(params.walletId));
    });
    await deposit();
    expect(asked).toHaveLength(1);
    expect(wallets.reads).toBe(1);
    expect(seen[0]).toBe(seen[1]);
  });

  test('decides about what perform gets also if it reads several models at once', async () => {
    const { deposit, wallets, driver } = policed(async ({ params }, running) => {
      const [wallet] = await running.wallets.findAllByIds([params.walletId]);
      const { id, createdDate, state, balance } = wallet!;
      running.wallets.store(
        new Wallet({ id, createdDate, state, ownerId: 'somebody else', balance: balance + 400n, version: 2 }),
      );
    });
    expect(await deposit()).toBe(101n);
    expect(driver.committed).toMatchObject([{ changes: [{ expectedVersion: 1 }] }]);
    expect(wallets.reads).toBe(1);
  });

  test('is asked again in each attempt, about what is stored then', async () => {
    const { deposit, wallets, wallet, manager, asked, action, driver } = policed(byOwner);
    const { id, createdDate, state, balance } = wallet;
    manager(global).persistFailures.push(new StaleRecordError('Wallet', wallet.id.value, 1));
    const persist = manager(global).persist.bind(manager(global));
    manager(global).persist = (changes) => {
      wallets.store(new Wallet({ id, createdDate, state, balance, ownerId: 'somebody else', version: 2 }));
      return persist(changes);
    };
    await expect(deposit()).rejects.toMatchObject({ code: 'entity-not-found' });
    expect(asked).toHaveLength(2);
    expect(action.performed).toHaveLength(1);
    expect(driver.committed).toEqual([]);
  });

  test('is asked again after an error with which a retry can help', async () => {
    const down = [new TransientStorageError(global, 'the connection was lost')];
    const { deposit, asked } = policed(() => {
      const error = down.pop();
      if (error !== undefined) throw error;
    });
    expect(await deposit()).toBe(101n);
    expect(asked).toHaveLength(2);
  });

  test('cannot change the params of perform', async () => {
    const { deposit, wallet, action } = policed(({ params }) => {
      Object.assign(params, { walletId: openWallet().id });
    });
    await deposit();
    expect(action.performed).toEqual([{ walletId: wallet.id }]);
  });

  test('has no plan', async () => {
    const { deposit, driver } = policed((_request, _running, action) => action.stageTooEarly());
    await expect(deposit()).rejects.toMatchObject({ code: 'plan-unavailable' });
    expect(driver.committed).toEqual([]);
  });

  test('executes no action', async () => {
    const { deposit, driver } = policed(async ({ params }, { executor }) => {
      await executor.execute(owner, DepositAction, params);
    });
    await expect(deposit()).rejects.toMatchObject({ code: 'nested-execution' });
    expect(driver.committed).toEqual([]);
  });

  test('refuses if it returns anything, such as a forgotten false', async () => {
    const { deposit, driver } = policed((async () => false) as unknown as () => Promise<void>);
    await expect(deposit()).rejects.toMatchObject({ code: 'invariant-violation' });
    expect(driver.committed).toEqual([]);
  });

  test('learns for which event a handler executes the action', async () => {
    const handledEvent = { handler: 'bonus', eventId: 'event-1', shard: global };
    const { deposit, asked } = policed(() => undefined);
    await deposit({ idempotencyKey: 'bonus/event-1', handledEvent });
    expect(asked).toMatchObject([{ handledEvent }]);
  });

  test('leaves no lock behind when it refuses', async () => {
    const { deposit } = policed(byOwner, { clock: new ManualClock() });
    await expect(deposit({}, alice)).rejects.toMatchObject({ code: 'entity-not-found' });
    // The clock stands still, so a lock that was left behind would be waited for without end.
    expect(await deposit()).toBe(101n);
  });

  test('refuses because of a pending version only if that is committed', async () => {
    const manual = new ManualClock();
    const { deposit, asked, manager } = policed(byBalance, { groupCommit: true, clock: manual });
    const release = holdCommits(manager(global));
    manager(global).persistFailures.push(new Error('refused'));
    const first = deposit({ retry: { attemptsMax: 1 } });
    first.catch(() => undefined);
    await settled();
    const next = deposit({ retry: { attemptsMax: 1 } });
    await settled();
    expect(asked).toHaveLength(2);
    release();
    await expect(first).rejects.toThrow('refused');
    expect(await next).toBe(101n);
    expect(asked).toHaveLength(3);
  });
});

describe('a request with an idempotency key', () => {
  const once: ExecutionConfiguration = { idempotencyKey: 'once' };

  test('is answered from its first effect without asking the policy again', async () => {
    const { deposit, asked } = policed(byOwner);
    expect(await deposit(once)).toBe(101n);
    expect(await deposit(once)).toBe(101n);
    expect(asked).toHaveLength(1);
  });

  test('of another principal is another request, about which the policy is asked', async () => {
    const { deposit, driver } = policed(byOwner);
    await deposit(once);
    await expect(deposit(once, alice)).rejects.toMatchObject({ code: 'entity-not-found' });
    expect(driver.committed).toHaveLength(1);
  });

  test('that the policy refuses is evaluated again', async () => {
    let isOpen = false;
    const { deposit } = policed(() => {
      if (!isOpen) throw new AccessDeniedError('Not yet');
    });
    await expect(deposit(once)).rejects.toMatchObject({ code: 'access-denied' });
    isOpen = true;
    expect(await deposit(once)).toBe(101n);
  });
});

class OpenAction extends Action<null> {
  protected async perform(): Promise<void> {}
}

describe('an executor that requires policies', () => {
  test('refuses actions without one, by their names', () => {
    expect(() =>
      executorOf(async () => null, { actions: [new OpenAction(clock)], requirePolicies: true }),
    ).toThrow(
      expect.objectContaining({
        code: 'invariant-violation',
        message: expect.stringContaining('OpenAction') as string,
      }),
    );
  });

  test('accepts actions that have one', async () => {
    const { deposit } = policed(byOwner, { requirePolicies: true });
    expect(await deposit()).toBe(101n);
  });
});

test('a policy may be given to the constructor of an action', async () => {
  const policy: ActionPolicy<null> = {
    authorize: ({ principal }) => {
      if (principal !== owner) throw new AccessDeniedError('Only the owner');
    },
  };
  const { executor } = executorOf(async () => null, {
    actions: [new OpenAction(clock, policy)],
    requirePolicies: true,
  });
  await executor.execute(owner, OpenAction, null);
  await expect(executor.execute(alice, OpenAction, null)).rejects.toMatchObject({ code: 'access-denied' });
});

test('a policy without authorize is refused when the executor is created', () => {
  class MistakenAction extends Action<null> {
    override readonly policy = { authorise: () => undefined } as unknown as ActionPolicy<null>;
    protected async perform(): Promise<void> {}
  }
  expect(() => executorOf(async () => null, { actions: [new MistakenAction(clock)] })).toThrow(
    expect.objectContaining({ code: 'invariant-violation' }),
  );
});

test('a policy that a field without a value replaces is refused when the executor is created', () => {
  class ForgetfulAction extends Action<null> {
    protected async perform(): Promise<void> {}
  }
  const action = new ForgetfulAction(clock, { authorize: () => undefined });
  // As a field that is declared without `declare` does in JavaScript.
  Object.defineProperty(action, 'policy', { value: undefined });
  expect(() => executorOf(async () => null, { actions: [action] })).toThrow(
    expect.objectContaining({ code: 'invariant-violation' }),
  );
});

test.each([
  ['allows', undefined],
  ['refuses', new AccessDeniedError('no')],
])('a policy that %s has ended, so that work it left running executes actions', async (_what, refusal) => {
  const answered = Promise.withResolvers<void>();
  const later: Promise<bigint>[] = [];
  const { deposit } = policed(async () => {
    if (later.length > 0) return;
    later.push(answered.promise.then(() => deposit()));
    if (refusal !== undefined) throw refusal;
  });
  const [first] = await Promise.allSettled([deposit()]);
  expect(first).toMatchObject(refusal === undefined ? { value: 101n } : { reason: refusal });
  answered.resolve();
  expect(await Promise.all(later)).toEqual([101n]);
});

test('a policy that is taken away later is still asked', async () => {
  const { deposit, action } = policed(byOwner);
  Object.assign(action, { policy: undefined });
  await expect(deposit({}, alice)).rejects.toMatchObject({ code: 'entity-not-found' });
});

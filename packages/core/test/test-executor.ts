import * as z from 'zod';
import {
  Action,
  ActionExecutor,
  type Clock,
  type DatabaseRegistry,
  type ExecutionConfiguration,
  type ExecutorOptions,
  FrameworkAction,
  type Plan,
  type Principal,
  ShardIdentifier,
} from '../src/index.js';
import { type FakeDriver, type FakeTransactionManager, openFakeDatabases } from './fake-databases.js';
import { FakeRepository } from './fake-repository.js';
import { Address } from './order.js';
import { VirtualClock } from './virtual-clock.js';
import { Wallet } from './wallet.js';
import { copyOfValue } from '../src/model/exact-json.js';

export const global: ShardIdentifier = ShardIdentifier.of(0, 0);
export const mexico: ShardIdentifier = ShardIdentifier.of(1, 0);
export const principal: Principal = { name: 'alice' };

type Work = (plan: () => Plan, params: unknown) => Promise<unknown>;

/** An action whose perform a test writes in one line. */
export class TestAction extends Action<unknown, unknown> {
  readonly #work: Work;

  constructor(clock: Clock, work: Work) {
    super(clock);
    this.#work = work;
  }

  protected perform(_principal: Principal, params: unknown): Promise<unknown> {
    return this.#work(() => this.plan(), params);
  }
}

/** What tests have passed, by what the log gets of it. */
const passed = new Map<string, unknown>();

/** A test may pass anything to its work, such as models; the log gets whatever JSON can represent of it. */
const anything = z.codec(z.json(), z.unknown(), {
  decode: (json) => copyOfValue(passed.get(JSON.stringify(json))),
  encode: (params) => {
    const json = JSON.stringify(params, (_key, value: unknown) =>
      typeof value === 'bigint' ? value.toString() : value,
    ) as string | undefined;
    passed.set(json ?? 'null', params);
    return json === undefined ? null : z.json().parse(JSON.parse(json));
  },
});
FrameworkAction({ params: anything })(TestAction);

/** A {@link TestAction} whose result is also returned to a repeat with its idempotency key. */
export class ResultAction extends TestAction {}
FrameworkAction({ params: anything, result: z.unknown() })(ResultAction);

/** An executor with fake databases for two shards and with one action, and everything that a test inspects. */
export interface TestExecutor {
  readonly executor: ActionExecutor;
  readonly execute: (params?: unknown, configuration?: ExecutionConfiguration) => Promise<unknown>;
  readonly databases: DatabaseRegistry;
  readonly driver: FakeDriver;
  readonly manager: (shard: ShardIdentifier) => FakeTransactionManager;
  readonly clock: VirtualClock;
  readonly wallets: FakeRepository<Wallet>;
}

/** An executor of an action that does this work. */
export function executorOf(
  work: Work,
  options: Partial<ExecutorOptions> = {},
  actionClass: typeof TestAction = TestAction,
): TestExecutor {
  const clock = new VirtualClock('2026-03-03T03:03:03Z');
  const wallets = new FakeRepository(Wallet);
  const { databases, driver, manager } = openFakeDatabases(global, mexico);
  const executor = new ActionExecutor({
    namespace: 'com.example.wallet',
    databases,
    repositories: [wallets, new FakeRepository(Address)],
    actions: [new actionClass(clock, work)],
    clock,
    random: () => 1,
    ...options,
  });
  const execute = (params?: unknown, configuration?: ExecutionConfiguration): Promise<unknown> =>
    executor.execute(principal, actionClass, params, configuration);
  return { executor, execute, databases, driver, manager, clock, wallets };
}

/** A new wallet of 100 on a shard. */
export function openWallet(shard: ShardIdentifier = global, balance = 100n): Wallet {
  return Wallet.open(shard, balance, new Date('2026-01-01T00:00:00Z'));
}

/** A wallet of 100 that was written before the test began, and that no repository finds. */
export function writtenWallet(shard: ShardIdentifier = global): Wallet {
  const { id, createdDate } = openWallet(shard);
  return new Wallet({ id, createdDate, state: 'OPENED', ownerId: 'owner-1', balance: 100n, version: 1 });
}

/** A wallet of 100 that was stored before the test began. */
export function storedWallet(
  { wallets }: Pick<TestExecutor, 'wallets'>,
  shard: ShardIdentifier = global,
): Wallet {
  return wallets.store(writtenWallet(shard));
}

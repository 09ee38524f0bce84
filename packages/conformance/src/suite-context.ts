import {
  ActionExecutor,
  type ExecutionConfiguration,
  type ExecutorOptions,
  type Plan,
  ShardIdentifier,
  ShardedId,
  systemClock,
} from '@framework/core';
import type { AnyEntity, ChangeSet } from '@framework/core/adapter';

import {
  CreditAccountAction,
  FindOwnerAction,
  OpenAccountAction,
  StageAction,
  TransferAction,
  WithdrawAction,
} from './account-actions.js';
import { Account, type AccountFields } from './account.js';
import type { AccountReader, StorageFixture, StoredEvent } from './storage-fixture.js';

/** The default shard. */
export const firstShard = ShardIdentifier.of(0, 0);
/** A shard in the same database as {@link firstShard}. */
export const sameDatabaseShard = ShardIdentifier.of(0, 1);
/** A shard in another database. */
export const otherDatabaseShard = ShardIdentifier.of(1, 0);
/** A shard that is not configured. */
export const unknown = ShardIdentifier.of(9, 9);

/** The principal of the suite's actions. */
export const principal = { name: 'auditor' };
/** The namespace of the suite's executor. */
export const namespace = 'conformance.suite';

/** Invalid limits of a page. */
export const noLimits: readonly number[] = [Number.NaN, Number.POSITIVE_INFINITY, -1, 0, 1.5, 1_001];

/** How the suite's executor differs from the default one. */
export type SuiteOptions = Pick<ExecutorOptions, 'groupCommit' | 'modelLocks' | 'retry' | 'idempotency'>;

/**
 * What the tests of the suite share: the fixture, and an executor of the suite's actions on it.
 *
 * An adapter's own tests may open another context, for the same models on other databases.
 */
export class SuiteContext {
  #fixture: StorageFixture | undefined;
  #executor: ActionExecutor | undefined;

  /** The adapter's fixture, while the suite runs. */
  get fixture(): StorageFixture {
    if (this.#fixture === undefined)
      throw new Error('There is no fixture yet: call open() first, and use the context only in tests');
    return this.#fixture;
  }

  get accounts(): AccountReader {
    return this.fixture.accounts;
  }

  get executor(): ActionExecutor {
    if (this.#executor === undefined)
      throw new Error('There is no executor yet: call open() first, and use the context only in tests');
    return this.#executor;
  }

  /**
   * Takes the fixture, and creates the executor on it. Call it first.
   *
   * @param options overrides of the executor's defaults
   */
  open(fixture: StorageFixture, options: SuiteOptions = {}): void {
    const { accounts, tags, databases } = fixture;
    this.#fixture = fixture;
    this.#executor = new ActionExecutor({
      ...options,
      namespace,
      databases,
      repositories: [accounts, tags],
      actions: [
        new CreditAccountAction(systemClock, accounts),
        new FindOwnerAction(systemClock, accounts),
        new OpenAccountAction(systemClock),
        new StageAction(systemClock),
        new TransferAction(systemClock, accounts),
        new WithdrawAction(systemClock, accounts),
      ],
    });
  }

  /** Executes one action that runs the given function within perform. */
  async stage(work: (plan: Plan) => unknown, configuration?: ExecutionConfiguration): Promise<void> {
    await StageAction.staging(work, () => this.executor.execute(principal, StageAction, {}, configuration));
  }

  /** Stores new models with one action and returns them as stored. */
  async store<Models extends readonly AnyEntity[]>(...models: Models): Promise<Models> {
    let stored: readonly AnyEntity[] = [];
    await this.stage((plan) => (stored = plan.addAll(models)), { allowCrossShard: true });
    return stored as Models;
  }

  /** Stores a new account, with its event, and returns it as stored. */
  async openAccount(
    shard: ShardIdentifier = firstShard,
    fields: Partial<AccountFields> = {},
  ): Promise<Account> {
    const [account] = await this.store(Account.open(shard, systemClock.now(), fields));
    return account;
  }

  /** Adds to an account with an action that reads it. */
  async credit(account: Account, amount: string, configuration?: ExecutionConfiguration): Promise<Account> {
    const params = { accountId: account.id, amount };
    return this.executor.execute(principal, CreditAccountAction, params, configuration);
  }

  /** Withdraws from an account with an action that refuses to overdraw it, so that a repeat is refused. */
  async withdraw(account: Account, amount: string, configuration?: ExecutionConfiguration): Promise<Account> {
    const params = { accountId: account.id, amount };
    return this.executor.execute(principal, WithdrawAction, params, configuration);
  }

  /** Everything that can be read: models of all shards, and the log of the default shard's database. */
  async contents(): Promise<unknown> {
    const { accounts, tags } = this.fixture;
    const [foundAccounts, foundTags, events] = await Promise.all([
      accounts.findAll(),
      tags.findAll(),
      this.storedEvents(),
    ]);
    return { accounts: foundAccounts, tags: foundTags, events };
  }

  /** Every row of the log in the shard's database. */
  storedEvents(shard: ShardIdentifier = firstShard): Promise<readonly StoredEvent[]> {
    return this.fixture.storedEvents(shard);
  }
}

/** The options of an execution that must not be retried. */
export const once: ExecutionConfiguration = { retry: { attemptsMax: 1 } };

/** The item at that position, from 0; fails the test when the list is shorter. */
export function at<T>(list: readonly T[], index: number): T {
  const item = list[index];
  if (item === undefined) throw new Error(`There is no item ${index} in a list of ${list.length}`);
  return item;
}

/**
 * Makes the change set of one update, without the executor and its checks.
 *
 * @param next the account as it will be stored, its version one higher than the row's
 * @param payloads one for each event
 */
export function changeSetOf(
  repository: AccountReader,
  next: Account,
  payloads: readonly string[],
): ChangeSet {
  const shard = next.id.resolveShardIdentifier();
  const event = {
    modelId: next.id.value,
    modelName: 'Account',
    modelVersion: next.version,
    type: 'TriedEvent',
  };
  const uuid = (): string => ShardedId.generate(Account, shard).value;
  return {
    shard,
    action: {
      id: uuid(),
      name: 'TryAction',
      params: '{}',
      namespace,
      principal: principal.name,
      headers: '{}',
      startedDate: systemClock.now(),
    },
    changes: [
      {
        kind: 'update',
        repository,
        model: next,
        expectedVersion: next.version - 1,
        row: repository.encode(next),
      },
    ],
    events: payloads.map((payload, ordinal) => ({ ...event, id: uuid(), ordinal, payload })),
  };
}

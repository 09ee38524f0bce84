import {
  ActionExecutor,
  type DatabaseRegistry,
  type ExecutionConfiguration,
  type ExecutorOptions,
  type Page,
  type PageRequest,
  type Plan,
  type Repository,
  ShardIdentifier,
  ShardedId,
  systemClock,
} from '@framework/core';
import type { AnyEntity, ChangeSet, ModelMapper } from '@framework/core/adapter';

import {
  CreditAccountAction,
  FindOwnerAction,
  OpenAccountAction,
  StageAction,
  TransferAction,
  WithdrawAction,
} from './account-actions.js';
import { Account, type AccountFields, type Tag } from './account.js';

/** The default shard. */
export const firstShard = ShardIdentifier.of(0, 0);
/** A shard in the same database as {@link firstShard}. */
export const sameDatabaseShard = ShardIdentifier.of(0, 1);
/** A shard in another database. */
export const otherDatabaseShard = ShardIdentifier.of(1, 0);
/** A shard that is not configured. */
export const unknown = ShardIdentifier.of(9, 9);

/** Who executes the suite's actions. */
export const principal = { name: 'auditor' };
/** The namespace of the suite's executor. */
export const namespace = 'conformance.suite';

/** What a page cannot be limited by. */
export const noLimits: readonly number[] = [Number.NaN, Number.POSITIVE_INFINITY, -1, 1.5];

/**
 * What an adapter gives the suite: its registry, its repositories of the suite's models, and some means of looking
 * behind them.
 *
 * The shards (0, 0) and (1, 0) stand in different databases, and (0, 1) in the database of (0, 0); (0, 0) is the
 * default. Every database has tables for {@link Account} and {@link Tag}; where columns have types, a balance has 20
 * digits before and 18 after the point.
 */
export interface StorageFixture {
  /** What the database cannot hold: it must be refused when it is staged. Everything else must come back as it is. */
  readonly cannotHold: ReadonlySet<LimitedValue>;
  readonly databases: DatabaseRegistry;
  readonly accounts: AccountReader;
  readonly tags: ModelReader<Tag>;
  /** Every row of the log in the shard's database, in the order in which they were written. */
  storedEvents(shard: ShardIdentifier): Promise<readonly StoredEvent[]>;
  /** Sets the note of an account's row behind the framework's back, within the transaction in which it is called. */
  overwriteNote(account: Account, note: string): Promise<void>;
  /** How many idempotency keys the shard's database holds, expired ones included. */
  keyCount(shard: ShardIdentifier): Promise<number>;
  /** Lets every idempotency key of all databases expire now. */
  expireKeys(): Promise<void>;
  /** Empties every table, every log and the idempotency keys. */
  clear(): Promise<void>;
  /** Closes the registry and removes what the fixture made. */
  close(): Promise<void>;
}

/**
 * A kind of value that some databases hold and others do not: dates after the year 9999, decimals with more than 20 digits before or 18
 * after the point, texts of decimals that are not digits and a point, integers of more than 64 bits, fields that are `undefined`.
 */
export type LimitedValue =
  'distant-years' | 'long-decimals' | 'other-decimals' | 'large-integers' | 'missing-fields';

/** The repository of accounts, with reads by a condition as users write them. */
export interface AccountReader extends ModelReader<Account> {
  /** On all shards, in the order of ids. */
  findByOwner(owner: string): Promise<readonly Account[]>;
  /** The one account of the owner, `undefined` when there is none; refused with `not-unique` when several are. */
  findOneByOwner(owner: string): Promise<Account | undefined>;
  countByOwner(owner: string): Promise<number>;
  findPageByOwner(owner: string, page: PageRequest<Account>): Promise<Page<Account>>;
}

/** One row of the log, column by column; JSON columns as values. */
export interface StoredEvent {
  readonly id: string;
  readonly actionId: string;
  readonly ordinal: number;
  readonly namespace: string;
  readonly actionName: string;
  readonly actionParams: unknown;
  readonly principal: string;
  readonly modelId: string | null;
  readonly modelName: string | null;
  readonly modelVersion: number | null;
  readonly eventType: string | null;
  readonly payload: unknown;
  readonly headers: unknown;
  readonly startedDate: Date;
  readonly createdDate: Date;
}

/** What the suite reads and writes through: both ports of an adapter's repositories. */
export interface ModelReader<M extends AnyEntity> extends Repository<M>, ModelMapper<M> {}

/** How the suite's executor differs from one with the defaults. */
export type SuiteOptions = Pick<ExecutorOptions, 'groupCommit' | 'modelLocks' | 'retry' | 'idempotency'>;

/**
 * What the tests of the suite share: the fixture, and an executor of the suite's actions on it.
 *
 * Further tests of one adapter may open one of their own, for the same models on other databases.
 */
export class SuiteContext {
  #fixture: StorageFixture | undefined;
  #executor: ActionExecutor | undefined;

  /** The adapter's fixture, while the suite runs. */
  get fixture(): StorageFixture {
    if (this.#fixture === undefined) throw new Error('The fixture is open only while tests run');
    return this.#fixture;
  }

  get accounts(): AccountReader {
    return this.fixture.accounts;
  }

  get executor(): ActionExecutor {
    if (this.#executor === undefined) throw new Error('The executor is there only while tests run');
    return this.#executor;
  }

  /**
   * Takes the fixture, and makes the executor on it; to be called before anything else.
   *
   * @param options what to change in the executor's defaults
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

  /** Executes one action that does what is given within perform. */
  async stage(work: (plan: Plan) => unknown, configuration?: ExecutionConfiguration): Promise<void> {
    await this.executor.execute(principal, StageAction, { stage: work }, configuration);
  }

  /** Stores new models by one action and gives them as stored. */
  async store<Models extends readonly AnyEntity[]>(...models: Models): Promise<Models> {
    let stored: readonly AnyEntity[] = [];
    await this.stage((plan) => (stored = plan.addAll(models)), { allowCrossShard: true });
    return stored as Models;
  }

  /** Stores a new account, with its event, and gives it as stored. */
  async openAccount(
    shard: ShardIdentifier = firstShard,
    fields: Partial<AccountFields> = {},
  ): Promise<Account> {
    const [account] = await this.store(Account.open(shard, systemClock.now(), fields));
    return account;
  }

  /** Adds to an account by an action that reads it. */
  async credit(account: Account, amount: string, configuration?: ExecutionConfiguration): Promise<Account> {
    const params = { accountId: account.id, amount };
    return this.executor.execute(principal, CreditAccountAction, params, configuration);
  }

  /** Takes from an account by an action that refuses to overdraw it, and so its own repetition. */
  async withdraw(account: Account, amount: string, configuration?: ExecutionConfiguration): Promise<Account> {
    const params = { accountId: account.id, amount };
    return this.executor.execute(principal, WithdrawAction, params, configuration);
  }

  /** All that can be read: models of all shards, and the log of the default shard's database. */
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

/** The configuration of an execution that must not try again. */
export const once: ExecutionConfiguration = { retry: { attemptsMax: 1 } };

/** The item in that place, 0 for the first; fails the test when the list is shorter. */
export function at<T>(list: readonly T[], index: number): T {
  const item = list[index];
  if (item === undefined) throw new Error(`There are only ${list.length} items`);
  return item;
}

/**
 * Makes the change set of one update, past the executor and its checks.
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

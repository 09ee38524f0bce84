import { AsyncLocalStorage } from 'node:async_hooks';

import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Plan,
  type Principal,
  type Repository,
  ShardIdentifier,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';

import { Account, accountCodec, sum } from './account.js';

/** Which account gets how much; a negative amount is subtracted. */
interface CreditParams {
  readonly accountId: Id<Account>;
  readonly amount: string;
}

/** Reads one account and adds to its balance; concurrent executions compete for the account. */
export class CreditAccountAction extends Action<CreditParams, Account> {
  readonly #accounts: Repository<Account>;

  constructor(clock: Clock, accounts: Repository<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  /** Stages the account with the amount added, and returns it. */
  protected async perform(_principal: Principal, { accountId, amount }: CreditParams): Promise<Account> {
    const account = await this.#accounts.getById(accountId);
    return this.plan().update(account.credit(amount));
  }
}

interface FindOwnerParams {
  readonly accountId: Id<Account>;
}

/** Returns the owner of an account and stages nothing; declares a durable name and the schemas of its params and result. */
export class FindOwnerAction extends Action<FindOwnerParams, string> {
  readonly #accounts: Repository<Account>;

  constructor(clock: Clock, accounts: Repository<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  protected async perform(_principal: Principal, { accountId }: FindOwnerParams): Promise<string> {
    const { owner } = await this.#accounts.getById(accountId);
    return owner;
  }
}

FrameworkAction({
  name: 'accounts.find-owner',
  params: z.object({ accountId: shardedIdCodec(Account) }),
  result: z.string(),
})(FindOwnerAction);

interface OpenAccountParams {
  readonly owner: string;
  readonly group: number;
}

/** Opens an account on the first shard of a group. Its params contain no id, and each attempt creates a different account. */
export class OpenAccountAction extends Action<OpenAccountParams, Account> {
  protected async perform(_principal: Principal, { owner, group }: OpenAccountParams): Promise<Account> {
    return this.plan().add(Account.open(ShardIdentifier.of(group, 0), this.clock.now(), { owner }));
  }
}

FrameworkAction({ params: z.object({ owner: z.string(), group: z.int() }), result: accountCodec })(
  OpenAccountAction,
);

type Stage = (plan: Plan) => unknown;

/** Stages what a test wants, for plans that no action of a domain would create. */
export class StageAction extends Action<object> {
  static readonly #work = new AsyncLocalStorage<Stage>();

  /** Lets perform run a test's own code in the executions that are started by the given function; the log records empty params. */
  static staging<T>(stage: Stage, execute: () => Promise<T>): Promise<T> {
    return StageAction.#work.run(stage, execute);
  }

  protected async perform(): Promise<void> {
    await StageAction.#work.getStore()?.(this.plan());
  }
}

/** From which account to which, and how much. */
interface TransferParams {
  readonly fromId: Id<Account>;
  readonly toId: Id<Account>;
  readonly amount: string;
}

/** Moves an amount between two accounts: stages the source first, whatever the order of their ids. */
export class TransferAction extends Action<TransferParams> {
  readonly #accounts: Repository<Account>;

  constructor(clock: Clock, accounts: Repository<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  /** Reads both accounts, then stages both; the balance of the source may become negative. */
  protected async perform(_principal: Principal, { fromId, toId, amount }: TransferParams): Promise<void> {
    const from = await this.#accounts.getById(fromId);
    const to = await this.#accounts.getById(toId);
    this.plan().update(from.credit(`-${amount}`));
    this.plan().update(to.credit(amount));
  }
}

/** From which account, and how much. */
interface WithdrawParams {
  readonly accountId: Id<Account>;
  readonly amount: string;
}

/** Thrown when a withdrawal is refused because the balance is too low. */
export class Overdrawn extends Error {}

/** Withdraws an amount that the balance of the account must cover, so a repeat is refused if too little is left. */
export class WithdrawAction extends Action<WithdrawParams, Account> {
  readonly #accounts: Repository<Account>;

  constructor(clock: Clock, accounts: Repository<Account>) {
    super(clock);
    this.#accounts = accounts;
  }

  /**
   * Stages the account with the amount subtracted, and returns it.
   *
   * @throws Overdrawn when the balance is lower than the amount
   */
  protected async perform(_principal: Principal, { accountId, amount }: WithdrawParams): Promise<Account> {
    const account = await this.#accounts.getById(accountId);
    if (sum(account.balance, `-${amount}`).startsWith('-')) throw new Overdrawn();
    return this.plan().update(account.credit(`-${amount}`));
  }
}

FrameworkAction({
  params: z.object({ accountId: shardedIdCodec(Account), amount: z.string() }),
  result: accountCodec,
})(WithdrawAction);

import {
  Account,
  AccountCreditedEvent,
  type AccountFields,
  CreditAccountAction,
  TransferAction,
  WithdrawAction,
  decimal,
} from '@framework/conformance';
import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  type Repository,
  ShardIdentifier,
  shardedIdCodec,
} from '@framework/core';
import { type EventHandler, type NamedHandlerOptions, FrameworkEventHandler } from '@framework/events';
import * as z from 'zod';

import { type TestEnvironmentOptions, specification } from '../../src/specification/index.js';
import { groupCommit } from '../group-commit.js';

export const firstShard: ShardIdentifier = ShardIdentifier.of(0, 0);
export const otherDatabaseShard: ShardIdentifier = ShardIdentifier.of(1, 0);

interface Params {
  readonly accountId: Id<Account>;
  readonly note: string;
}

/** Sets the note of an account; has no result, so that handlers can execute it. */
export class AnnotateAction extends Action<Params, undefined> {
  readonly #accounts: Pick<Repository<Account>, 'getById'>;

  constructor(clock: Clock, accounts: Pick<Repository<Account>, 'getById'>) {
    super(clock);
    this.#accounts = accounts;
  }

  protected async perform(_principal: Principal, { accountId, note }: Params): Promise<undefined> {
    const stored = await this.#accounts.getById(accountId);
    if (stored.note !== note) this.plan().update(stored.annotate(note));
  }
}

FrameworkAction({ params: z.object({ accountId: shardedIdCodec(Account), note: z.string() }) })(
  AnnotateAction,
);

type Work = EventHandler<AccountCreditedEvent>['handle'];

/** A handler of credits whose work a test writes in one line. */
export function onCredit(
  work: Work,
  options: Partial<NamedHandlerOptions> = {},
): EventHandler<AccountCreditedEvent> {
  class OnCredit implements EventHandler<AccountCreditedEvent> {
    readonly event = AccountCreditedEvent;
    readonly handle = work;
  }
  FrameworkEventHandler({ name: 'on-credit', ...options })(OnCredit);
  return new OnCredit();
}

/** The parts that the tests use: accounts on two shards, and the actions on them. */
export const accountEnvironment: Pick<
  TestEnvironmentOptions,
  'models' | 'actions' | 'shards' | 'groupCommit'
> = {
  models: [Account],
  groupCommit,
  shards: [firstShard, otherDatabaseShard],
  actions: ({ clock, repository }) => {
    const accounts = repository(Account);
    return [
      new CreditAccountAction(clock, accounts),
      new WithdrawAction(clock, accounts),
      new TransferAction(clock, accounts),
      new AnnotateAction(clock, accounts),
    ];
  },
};

/** A specification of the actions, with these handlers. */
export function accountsWith(...handlers: ReturnType<NonNullable<TestEnvironmentOptions['handlers']>>) {
  return specification({ ...accountEnvironment, handlers: () => handlers });
}

/** An account that was opened before the test. */
export function account(balance = '0', shard = firstShard, fields: Partial<AccountFields> = {}): Account {
  return Account.blank(shard, new Date('2025-05-05T05:05:05Z'), { balance: decimal(balance), ...fields });
}

export { CreditAccountAction, TransferAction, WithdrawAction };

import {
  Account,
  AccountCreditedEvent,
  AccountNotedEvent,
  AccountOpenedEvent,
  Overdrawn,
  Tag,
  decimal,
} from '@framework/conformance';
import {
  AccessDeniedError,
  Action,
  type ActionPolicy,
  type Clock,
  type Id,
  ModelEvent,
  type Principal,
  type Repository,
  ShardIdentifier,
  ShardedId,
} from '@framework/core';
import { describe, expect, test } from 'vitest';
import * as z from 'zod';

import { like, specification } from '../../src/specification/index.js';
import {
  AnnotateAction,
  CreditAccountAction,
  TransferAction,
  WithdrawAction,
  otherDatabaseShard,
  account,
  accountEnvironment,
  accountsWith,
  firstShard,
} from './accounts.js';

const spec = accountsWith();
const given = account('10');
const params = { accountId: given.id, amount: '2.5' };
const credited = new AccountCreditedEvent(given.id, decimal('2.5'), decimal('12.5'));
const failed = { code: 'ERR_ASSERTION' };

/** Credits only the accounts of the principal. */
class OwnCreditAction extends CreditAccountAction {
  override readonly policy: ActionPolicy<{ readonly accountId: Id<Account> }>;

  constructor(clock: Clock, accounts: Repository<Account>) {
    super(clock, accounts);
    this.policy = {
      authorize: async ({ principal, params: { accountId } }) => {
        const { owner } = await accounts.getById(accountId);
        if (owner !== principal.name) throw new AccessDeniedError('The account has another owner');
      },
    };
  }
}

describe('a specification of an action', () => {
  test('holds when the result, events and models are as expected', async () => {
    await spec
      .given(given)
      .when(CreditAccountAction, params)
      .thenExpect({ result: given.credit('2.5'), events: [credited], models: [given.credit('2.5')] });
  });

  test('fails with the difference when the result differs', async () => {
    const wrong = spec.given(given).when(CreditAccountAction, params).thenResult(given.credit('3'));
    await expect(wrong).rejects.toMatchObject({
      ...failed,
      message: expect.stringMatching(/The results differ.*\+ +balance: '12\.5.*- +balance: '13/s) as string,
    });
  });

  test.each([
    ['another field', [new AccountCreditedEvent(given.id, decimal('2.5'), decimal('12'))]],
    ['another class', [new AccountNotedEvent(given.id, 'none')]],
    ['another model', [new AccountCreditedEvent(account().id, decimal('2.5'), decimal('12.5'))]],
    ['one that is missing', []],
    ['one too many', [credited, credited]],
  ])('fails when the events differ by %s', async (_difference, events) => {
    const wrong = spec
      .given(given)
      .when(CreditAccountAction, params)
      .thenEvents(...events);
    await expect(wrong).rejects.toMatchObject(failed);
  });

  test.each([
    ['is missing', []],
    ['is another one', [account('12.5')]],
    ['has another field', [given.credit('3')]],
    ['is of another class', [Tag.of(firstShard, 'none')]],
  ])('fails when a changed model %s', async (_difference, models) => {
    const wrong = spec
      .given(given)
      .when(CreditAccountAction, params)
      .thenModels(...models);
    await expect(wrong).rejects.toMatchObject(failed);
  });

  test('names the option `shards` when a model is on a shard that it does not have', async () => {
    const elsewhere = account('10', ShardIdentifier.of(7, 7));
    const execution = spec.given(elsewhere).when(CreditAccountAction, params);
    await expect(execution.thenNothing()).rejects.toMatchObject({
      code: 'unknown-shard',
      message: expect.stringContaining('shards: […]') as string,
    });
  });

  test('refuses an action that returns the next version of a model and forgets to stage it', async () => {
    class ForgetfulAction extends Action<undefined, Account> {
      protected async perform(): Promise<Account> {
        return given.variant({ version: 1 }).credit('2.5');
      }
    }
    const forgetful = specification({
      ...accountEnvironment,
      actions: ({ clock }) => [new ForgetfulAction(clock)],
    }).given(given);
    const execution = forgetful.when(ForgetfulAction, undefined);
    await expect(execution.thenResult(given.credit('2.5'))).rejects.toMatchObject({
      code: 'invariant-violation',
    });
  });

  test('asks the policy of the action, for the principal of the execution', async () => {
    const owned = account('10', firstShard, { owner: 'ada' });
    const own = specification({
      ...accountEnvironment,
      actions: ({ clock, repository }) => [new OwnCreditAction(clock, repository(Account))],
    }).given(owned);
    const credit = { accountId: owned.id, amount: '2.5' };
    const crediting = (name: string) => own.when(OwnCreditAction, credit, { principal: { name } });
    await crediting('ada').thenModels(owned.credit('2.5'));
    await crediting('eve').thenThrows(AccessDeniedError);
    await own.when(OwnCreditAction, credit).thenThrows(AccessDeniedError);
  });

  test('ignores everything that it does not name', async () => {
    const execution = spec.given(given).when(CreditAccountAction, params);
    await execution.thenResult(like(Account, { version: 2, balance: decimal('12.5') }));
    await execution.thenModels(like(Account, { id: given.id, version: 2 }));
    await execution.thenEvents(like(AccountCreditedEvent, { amount: decimal('2.5') }));
    await expect(execution.thenModels(like(Account, { version: 3 }))).rejects.toMatchObject(failed);
    await expect(execution.thenEvents(like(AccountOpenedEvent, {}))).rejects.toMatchObject(failed);
  });

  test('evaluates each expectation in a new environment', async () => {
    const execution = spec.given(given).when(CreditAccountAction, params);
    const [one, other] = [await execution.thenEvents(credited), await execution.thenEvents(credited)];
    expect(one).not.toBe(other);
    expect(one.clock.now()).toEqual(new Date('2026-01-01T00:00:00Z'));
  });

  test('compares all models that are written, in the order of their first change', async () => {
    const other = account('1');
    await spec
      .given(given, other)
      .when(TransferAction, { fromId: other.id, toId: given.id, amount: '1' })
      .thenModels(other.credit('-1'), given.credit('1'));
  });

  test('detects a deleted model', async () => {
    class DeleteAction extends Action<undefined, undefined> {
      protected async perform(): Promise<undefined> {
        this.plan().update(given.variant({ version: 1 }).delete());
      }
    }
    await specification({ ...accountEnvironment, actions: ({ clock }) => [new DeleteAction(clock)] })
      .given(given)
      .when(DeleteAction, undefined)
      .thenModels(like(Account, { state: 'DELETED' }));
  });

  test('distinguishes no effect from some effect', async () => {
    const annotation = { accountId: given.id, note: 'new' };
    await spec
      .given(given.variant({ note: 'new' }))
      .when(AnnotateAction, annotation)
      .thenNothing();
    const something = spec.given(given).when(AnnotateAction, annotation);
    await expect(something.thenNothing()).rejects.toMatchObject(failed);
  });

  test('validates params with their schema', async () => {
    const broken = { accountId: given.id, note: 7 as unknown as string };
    await spec.given(given).when(AnnotateAction, broken).thenThrows('invalid-params');
  });

  test.each([
    ['reads something else than it wrote', (text: string) => text.toUpperCase()],
    ['cannot read what it wrote', () => 7 as never],
  ])('shows that an event is refused whose schema %s', async (_what, decode) => {
    class OddEvent extends ModelEvent<Account> {
      static readonly payload = z.object({
        note: z.codec(z.string(), z.string(), { decode, encode: (text) => text }),
      });

      constructor(
        accountId: string,
        readonly note: string,
      ) {
        super(accountId, Account);
      }
    }
    class OddAction extends Action<undefined, undefined> {
      protected async perform(): Promise<undefined> {
        const opened = Account.blank(firstShard, this.clock.now());
        this.plan().add(opened.variant({ events: [new OddEvent(opened.id.value, 'written')] }));
      }
    }
    const odd = specification({ ...accountEnvironment, actions: ({ clock }) => [new OddAction(clock)] });
    await odd.when(OddAction, undefined).thenThrows('unstorable-value');
  });

  test('lets time pass for an action that waits for the clock', async () => {
    class WaitingAction extends Action<undefined, Date> {
      protected async perform(_principal: Principal): Promise<Date> {
        await this.clock.sleep(3_600_000);
        return this.clock.now();
      }
    }
    await specification({ ...accountEnvironment, actions: ({ clock }) => [new WaitingAction(clock)] })
      .when(WaitingAction, undefined)
      .thenResult(new Date('2026-01-01T01:00:00Z'));
  });

  test('accepts the options of an executor', async () => {
    const foreign = account('1', otherDatabaseShard);
    const transfer = { fromId: foreign.id, toId: given.id, amount: '1' };
    const environment = await spec
      .given(given, foreign)
      .when(TransferAction, transfer, { allowCrossShard: true, principal: { name: 'ada' } })
      .thenModels(given.credit('1'), foreign.credit('-1'));
    expect(environment.events).toMatchObject([{ principal: 'ada' }, { principal: 'ada' }]);
    await spec.given(given, foreign).when(TransferAction, transfer).thenThrows('cross-shard');
  });

  test('refuses a model that it does not list', async () => {
    const unlisted = spec
      .given(Tag.of(firstShard, 'none'))
      .when(CreditAccountAction, params)
      .thenEvents(credited);
    await expect(unlisted).rejects.toMatchObject({ code: 'unknown-model' });
  });
});

describe('a specification of a refusal', () => {
  const execution = spec.given(given).when(WithdrawAction, { accountId: given.id, amount: '11' });

  test('holds for the class of an error and for its code', async () => {
    await execution.thenThrows(Overdrawn);
    const missing = ShardedId.generate(Account, firstShard);
    await spec.when(CreditAccountAction, { accountId: missing, amount: '1' }).thenThrows('entity-not-found');
  });

  test('fails for another error, and keeps it as the cause', async () => {
    await expect(execution.thenThrows('stale-record')).rejects.toMatchObject({
      ...failed,
      cause: expect.any(Overdrawn) as unknown,
    });
  });

  test('fails when nothing is thrown', async () => {
    const harmless = spec.given(given).when(CreditAccountAction, params);
    await expect(harmless.thenThrows('stale-record')).rejects.toMatchObject(failed);
  });

  test('fails when something was written', async () => {
    const foreign = account('1', otherDatabaseShard);
    class HalfAction extends Action<undefined, undefined> {
      protected async perform(): Promise<undefined> {
        const stored = given.variant({ version: 1 });
        this.plan().updateAll([stored.credit('1'), foreign.variant({ version: 9 }).credit('1')]);
      }
    }
    const half = specification({ ...accountEnvironment, actions: ({ clock }) => [new HalfAction(clock)] })
      .given(given, foreign)
      .when(HalfAction, undefined, { allowCrossShard: true });
    await expect(half.thenThrows('partial-commit')).rejects.toMatchObject({
      ...failed,
      message: expect.stringContaining('The events differ') as string,
    });
  });

  test('throws an unexpected error of an action unchanged', async () => {
    await expect(execution.thenEvents()).rejects.toBeInstanceOf(Overdrawn);
  });
});

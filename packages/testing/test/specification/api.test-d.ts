import { Account, AccountCreditedEvent, AccountNotedEvent, Tag, decimal } from '@framework/conformance';
// Only type-checked: what must compile, and after each @ts-expect-error what must not.
import type { DatabaseRegistry } from '@framework/core';
import { MemoryRepository } from '../../src/memory/index.js';
import { like, specification } from '../../src/specification/index.js';
import { AnnotateAction, CreditAccountAction, account, accountEnvironment } from './accounts.js';

class Accounts extends MemoryRepository<Account> {
  constructor(databases: DatabaseRegistry) {
    super({ model: Account, databases });
  }

  findByOwner(owner: string): Promise<readonly Account[]> {
    return this.findAllWhere((each) => each.owner === owner);
  }
}

const given = account();
const spec = specification(accountEnvironment);
const params = { accountId: given.id, amount: '1' };

export const ownQueries = specification({
  models: [Accounts, Tag],
  actions: ({ clock, repository }) => {
    const found: Promise<readonly Account[]> = repository(Accounts).findByOwner('ada');
    const tag: Promise<Tag> = repository(Tag).getById('id');
    void [found, tag];
    // @ts-expect-error the generic repository has no queries of its own
    void repository(Account).findByOwner('ada');
    // @ts-expect-error a repository of other models
    return [new CreditAccountAction(clock, repository(Accounts)), new AnnotateAction(clock, repository(Tag))];
  },
});

export const whens = [
  spec.when(CreditAccountAction, params),
  // @ts-expect-error a param of another type
  spec.when(CreditAccountAction, { accountId: given.id, amount: 1 }),
  // @ts-expect-error a missing param
  spec.when(CreditAccountAction, { accountId: given.id }),
  // @ts-expect-error an id of another model
  spec.when(CreditAccountAction, { accountId: Tag.of(accountEnvironment.shards![0], 'tag').id, amount: '1' }),
  // @ts-expect-error not an action
  spec.when(Account, {}),
];

export const thens = [
  spec.when(CreditAccountAction, params).thenResult(given),
  spec.when(CreditAccountAction, params).thenResult(like(Account, { version: 2 })),
  // @ts-expect-error the result is an account
  spec.when(CreditAccountAction, params).thenResult('credited'),
  // @ts-expect-error the result is an account
  spec.when(CreditAccountAction, params).thenResult(like(Tag, { version: 2 })),
  // @ts-expect-error an account has no such field
  spec.when(CreditAccountAction, params).thenModels(like(Account, { label: 'tag' })),
  // @ts-expect-error a field of another type
  spec.when(CreditAccountAction, params).thenEvents(like(AccountCreditedEvent, { amount: 1 })),
  // @ts-expect-error a model is not an event
  spec.when(CreditAccountAction, params).thenEvents(given),
  // @ts-expect-error an event is not a model
  spec.when(CreditAccountAction, params).thenModels(new AccountNotedEvent(given.id, null)),
  // @ts-expect-error a handler has no result
  spec.whenHandled(new AccountNotedEvent(given.id, null)).thenExpect({ result: undefined }),
  spec
    .whenHandled(new AccountNotedEvent(given.id, null))
    .thenEvents(like(AccountCreditedEvent, { amount: decimal('1') })),
];

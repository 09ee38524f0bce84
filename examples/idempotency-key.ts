// A client that got no answer repeats its request with the same key. The deposit is made once, and answered twice.
import {
  Action,
  ActionExecutor,
  FrameworkError,
  Model,
  type New,
  ShardIdentifier,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { MemoryRepository, memory, memorySharding } from '@framework/testing/memory';

class Account extends Model<Account, ShardedId<Account>, 'OPEN'> {
  readonly balance: number;

  constructor(fields: New<Account>) {
    super(fields);
    this.balance = fields.balance;
  }

  deposit(amount: number): Account {
    return this.copy({ balance: this.balance + amount });
  }
}

const shard = ShardIdentifier.of(0, 0);
const databases = openDatabases(memorySharding(shard), memory());
const accounts = new MemoryRepository({ model: Account, databases });

interface Deposit {
  readonly id: ShardedId<Account>;
  readonly amount: number;
}

class DepositAction extends Action<Deposit, Account> {
  /** The result is stored beside the key, in the transaction of the deposit. */
  static readonly result = Account;

  protected async perform(_principal: unknown, { id, amount }: Deposit): Promise<Account> {
    const account = await accounts.getById(id);
    return this.plan().update(account.deposit(amount));
  }
}

const actions = [new DepositAction(systemClock)];
const executor = new ActionExecutor({ namespace: 'bank', databases, repositories: [accounts], actions });

const id = ShardedId.generate(Account, shard);
await accounts.put(new Account({ id, state: 'OPEN', createdDate: systemClock.now(), balance: 100 }));

const client = { name: 'Ada' };
const once = { idempotencyKey: 'order-4711', onReplayed: () => console.log('an answer from before') };
const first = await executor.execute(client, DepositAction, { id, amount: 5 }, once);
console.log(`balance ${first.balance}`);
const again = await executor.execute(client, DepositAction, { id, amount: 5 }, once);
console.log(`balance ${again.balance}`);

// The key belongs to that request: another request with it is refused.
await executor.execute(client, DepositAction, { id, amount: 500 }, once).catch((error: unknown) => {
  console.log(FrameworkError.find(error)?.code);
});

// Output:
// balance 105
// an answer from before
// balance 105
// idempotency-key-reused

import {
  ActionExecutor,
  ActionRegistry,
  type AnyAction,
  type AnyEntity,
  type ChangeSet,
  type DatabaseConfig,
  type DatabaseDriver,
  EmbeddedBitsShardingStrategy,
  EntityNotFoundException,
  type Id,
  type ModelClass,
  type Repository,
  ShardIdentifier,
  ShardedId,
  type TransactionManager,
  openDatabases,
  systemClock,
} from '@framework/core';
import { Big } from 'big.js';
import { beforeEach, describe, expect, test } from 'vitest';
import { Transfer } from '../transfer/transfer.js';
import { Wallet } from '../wallet/wallet.js';
import type { WalletRepository } from '../wallet/wallet-repository.js';
import { WalletCloseAction } from './wallet-close-action.js';
import { WalletCreateAction } from './wallet-create-action.js';
import { WalletDepositMoneyAction } from './wallet-deposit-money-action.js';
import { WalletTransferAction } from './wallet-transfer-action.js';
import { WalletWithdrawMoneyAction } from './wallet-withdraw-money-action.js';

const global = ShardIdentifier.of(0, 0);
const mexico = ShardIdentifier.of(1, 0);
const principal = { name: 'alice' };
const ownerId = '6f1c0c5e-6d5b-4a53-9b1e-0d5f7c2b9a10';

const committed: ChangeSet[] = [];
const stored = new Map<string, Wallet>();

beforeEach(() => {
  committed.length = 0;
  stored.clear();
});

/** Databases that remember what was committed. */
const driver: DatabaseDriver = {
  open: () => ({
    transactionManager: (shard): TransactionManager => ({
      shard,
      log: { findByModel: async () => ({ items: [], next: undefined }) },
      inTransaction: (work) => work(),
      keys: { find: async () => undefined, deleteExpired: async () => 0 },
      persist: async (changes) => {
        committed.push(changes);
        return 'written';
      },
      isCommitted: async () => false,
    }),
    delivery: undefined as never,
    ready: async () => undefined,
    ping: async () => undefined,
    close: async () => undefined,
  }),
};

function repositoryOf<M extends AnyEntity>(model: ModelClass<M>): Repository<M> {
  return { model, strategy: new EmbeddedBitsShardingStrategy(), encode: ({ version }) => ({ version }) };
}

/** The wallets that a test has stored. */
const wallets = {
  getById: async (id: Id<Wallet>): Promise<Wallet> => {
    const wallet = stored.get(id.value);
    if (wallet === undefined) throw new EntityNotFoundException('Wallet', id.value);
    return wallet;
  },
} as unknown as WalletRepository;

const databaseConfig: DatabaseConfig = {
  path: 'primary-config',
  name: 'primaryConfig',
  address: 'postgresql://db/wallets',
  username: undefined,
  password: undefined,
  driverClassName: undefined,
  poolMax: 1,
  acquisitionTimeoutMs: 1,
  acquisitionQueueMax: 1,
  statementTimeoutMs: 1,
};

const executor = new ActionExecutor({
  namespace: 'com.example.wallet',
  databases: openDatabases(
    {
      defaultShard: global,
      members: [global, mexico].map((shard) => ({
        shard,
        groupName: 'group',
        name: String(shard),
        databases: new Map([['primaryConfig', databaseConfig]]),
      })),
    },
    driver,
  ),
  repositories: [repositoryOf(Wallet), repositoryOf(Transfer)],
  actions: [
    new WalletCreateAction(systemClock),
    new WalletDepositMoneyAction(systemClock, wallets),
    new WalletWithdrawMoneyAction(systemClock, wallets),
    new WalletCloseAction(systemClock, wallets),
    new WalletTransferAction(systemClock, wallets),
  ],
});

function store(
  balance: string,
  options: { readonly shard?: ShardIdentifier; readonly currency?: string } = {},
): Wallet {
  const { shard = global, currency = 'EUR' } = options;
  const wallet = new Wallet({
    id: ShardedId.generate(Wallet, shard),
    state: 'OPENED',
    createdDate: new Date(0),
    version: 1,
    ownerId,
    currency,
    balance: new Big(balance),
  });
  stored.set(wallet.id.value, wallet);
  return wallet;
}

/** Everything that was committed, as the log will show it. */
function logged(): readonly unknown[] {
  return committed.flatMap(({ shard, action, events }) =>
    events.map(({ modelId, modelVersion, type, payload }) => {
      const fields: unknown = JSON.parse(payload);
      return { shard, action: action.name, modelId, modelVersion, type, payload: fields };
    }),
  );
}

describe('WalletCreateAction', () => {
  test.each([
    ['MX', mexico],
    ['DE', global],
    ['mx', global],
  ])('opens a wallet of %j on %s', async (country, shard) => {
    const params = { country, ownerId, currency: 'EUR', initialBalance: new Big('12.50') };
    const wallet = await executor.execute(principal, WalletCreateAction, params);
    expect(wallet).toMatchObject({ version: 1, state: 'OPENED', events: [] });
    expect(committed.map((changes) => changes.shard)).toEqual([shard]);
    expect(committed[0]?.action).toMatchObject({
      name: 'WalletCreateAction',
      params: JSON.stringify({ country, ownerId, currency: 'EUR', initialBalance: '12.5' }),
    });
    expect(logged()).toMatchObject([
      { type: 'WalletCreatedEvent', modelVersion: 1, payload: { ownerId, currency: 'EUR', balance: '12.5' } },
    ]);
  });
});

describe('WalletDepositMoneyAction', () => {
  test('updates the wallet and logs exactly the amount and the new balance', async () => {
    const { id } = store('100', { shard: mexico });
    const params = { walletId: id, amount: new Big('25.50'), recipient: 'bob' };
    const wallet = await executor.execute(principal, WalletDepositMoneyAction, params);
    expect(wallet.version).toBe(2);
    expect(wallet.balance.toFixed()).toBe('125.5');
    expect(logged()).toEqual([
      {
        shard: mexico,
        action: 'WalletDepositMoneyAction',
        modelId: id.value,
        modelVersion: 2,
        type: 'WalletMoneyDepositedEvent',
        payload: { amount: '25.5', newBalance: '125.5' },
      },
    ]);
    expect(committed[0]?.action.params).toBe(
      JSON.stringify({ walletId: id.value, amount: '25.5', recipient: 'bob' }),
    );
  });

  test('refuses params that are no amounts', async () => {
    const params = { walletId: store('100').id, amount: 25.5 as unknown as Big };
    await expect(executor.execute(principal, WalletDepositMoneyAction, params)).rejects.toMatchObject({
      code: 'invalid-params',
      issues: [{ path: 'amount' }],
    });
  });
});

test('WalletWithdrawMoneyAction takes money out', async () => {
  const { id } = store('100');
  const params = { walletId: id, amount: new Big('0.01') };
  const wallet = await executor.execute(principal, WalletWithdrawMoneyAction, params);
  expect(wallet.balance.toFixed()).toBe('99.99');
  expect(logged()).toMatchObject([
    { type: 'WalletMoneyWithdrawnEvent', payload: { amount: '0.01', newBalance: '99.99' } },
  ]);
});

test('WalletCloseAction closes the wallet', async () => {
  const wallet = await executor.execute(principal, WalletCloseAction, { walletId: store('1').id });
  expect(wallet).toMatchObject({ state: 'CLOSED', version: 2 });
  expect(logged()).toMatchObject([{ type: 'WalletClosedEvent', payload: {} }]);
});

describe('WalletTransferAction', () => {
  const amount = new Big('2.50');

  test('changes both wallets and adds the transfer in one commit', async () => {
    const source = store('10');
    const destination = store('0');
    const params = { sourceId: source.id, destId: destination.id, amount };
    const transfer = await executor.execute(principal, WalletTransferAction, params);
    expect(transfer).toMatchObject({ state: 'COMPLETED', version: 1, currency: 'EUR' });
    expect(committed).toHaveLength(1);
    expect(committed[0]?.changes.map(({ kind, model }) => [kind, model.id.value])).toEqual([
      ['update', source.id.value],
      ['update', destination.id.value],
      ['add', transfer.id.value],
    ]);
    expect(logged()).toMatchObject([
      { type: 'WalletMoneyWithdrawnEvent', payload: { amount: '2.5', newBalance: '7.5' } },
      { type: 'WalletMoneyDepositedEvent', payload: { amount: '2.5', newBalance: '2.5' } },
    ]);
  });

  test('crosses shards only where the caller allows it', async () => {
    const params = { sourceId: store('10', { shard: mexico }).id, destId: store('0').id, amount };
    await expect(executor.execute(principal, WalletTransferAction, params)).rejects.toMatchObject({
      code: 'cross-shard',
    });
    expect(committed).toEqual([]);
    const transfer = await executor.execute(principal, WalletTransferAction, params, {
      allowCrossShard: true,
    });
    expect(transfer.id.resolveShardIdentifier()).toBe(mexico);
    expect(committed.map(({ shard }) => shard)).toEqual([global, mexico]);
  });

  test.each([
    ['invalid-amount', (): [Wallet, Wallet, string] => [store('10'), store('0'), '0']],
    ['invalid-amount', (): [Wallet, Wallet, string] => [store('10'), store('0'), '0.001']],
    ['insufficient-funds', (): [Wallet, Wallet, string] => [store('10'), store('0'), '10.01']],
    [
      'currency-mismatch',
      (): [Wallet, Wallet, string] => [store('10'), store('0', { currency: 'USD' }), '1'],
    ],
    ['wallet-closed', (): [Wallet, Wallet, string] => [store('10'), closed(store('0')), '1']],
    ['wallet-closed', (): [Wallet, Wallet, string] => [closed(store('10')), store('0'), '1']],
    ['entity-not-found', (): [Wallet, Wallet, string] => [store('10'), forgotten(store('0')), '1']],
  ])('refuses by %s, and writes nothing', async (code, given) => {
    const [source, destination, text] = given();
    const params = { sourceId: source.id, destId: destination.id, amount: new Big(text) };
    await expect(executor.execute(principal, WalletTransferAction, params)).rejects.toMatchObject({ code });
    expect(committed).toEqual([]);
  });

  test('refuses to move money from a wallet to itself, whatever the amount', async () => {
    const { id } = store('10');
    const params = { sourceId: id, destId: id, amount: new Big(-1) };
    await expect(executor.execute(principal, WalletTransferAction, params)).rejects.toMatchObject({
      code: 'same-wallet',
    });
  });

  test('says so when the amount is not positive', async () => {
    const params = { sourceId: store('10').id, destId: store('0').id, amount: new Big(0) };
    await expect(executor.execute(principal, WalletTransferAction, params)).rejects.toThrow(
      'Transfer amount must be positive',
    );
  });
});

function closed(wallet: Wallet): Wallet {
  const next = wallet.close();
  stored.set(next.id.value, next);
  return next;
}

function forgotten(wallet: Wallet): Wallet {
  stored.delete(wallet.id.value);
  return wallet;
}

test('every action is marked for discovery', () => {
  const made = new Set<unknown>();
  ActionRegistry.discover((action) => {
    made.add(action);
    return new (action as unknown as new (...args: readonly unknown[]) => AnyAction)(systemClock, wallets);
  });
  const marked = [
    WalletCreateAction,
    WalletDepositMoneyAction,
    WalletWithdrawMoneyAction,
    WalletCloseAction,
    WalletTransferAction,
  ];
  expect(made).toEqual(new Set(marked));
});

import {
  ActionExecutor,
  type DatabaseRegistry,
  Model,
  type New,
  type Principal,
  ShardedId,
  openDatabases,
  systemClock,
} from '@framework/core';
import { Delivery, DeliveryOperator, type HandlerContext } from '@framework/events';
import { VirtualClock } from '@framework/testing';
import {
  ConnectionLostError,
  MemoryFaults,
  MemoryRepository,
  MemoryServer,
  memory,
  memorySharding,
} from '@framework/testing/memory';
import { createTestDatabase } from '@framework/testing/postgres';
import { like, specification } from '@framework/testing/specification';
import { Big } from 'big.js';
import { afterAll, describe, expect, test } from 'vitest';

import {
  Notification,
  NotifyRecipientAction,
  NotifyRecipientOnDeposit,
} from '../src/notification/notify-recipient.js';
import { TransferDecision, TransferReceivedEvent } from '../src/transfer/transfer-decision.js';
import { RefundTransferAction, SettleTransfer, SettleTransferAction } from '../src/transfer/transfer-saga.js';
import { Transfer } from '../src/transfer/transfer.js';
import { WalletCloseAction } from '../src/wallet/wallet-close-action.js';
import { WalletCreateAction } from '../src/wallet/wallet-create-action.js';
import { WalletDepositMoneyAction } from '../src/wallet/wallet-deposit-money-action.js';
import { WalletClosedError, WalletError } from '../src/wallet/wallet-error.js';
import { Wallet, WalletMoneyDepositedEvent } from '../src/wallet/wallet.js';
import { global, mexico, ownerId as owner, walletOf } from './wallet-specification.js';

// Code that is shown on pages and is nowhere else: scripts/check-docs.mjs compares it with this file, line by line.
const shard = global;
const principal: Principal = { name: 'ana' };
const amount = new Big('25.50');

/** The service's actions on wallets in memory, and a wallet in them. */
async function openService() {
  const namespace = 'com.example.wallet';
  const databases = openDatabases(memorySharding(shard), memory());
  const wallets = new MemoryRepository({ model: Wallet, databases });
  const notifications = new MemoryRepository({ model: Notification, databases });
  const repositories = [wallets, notifications];
  const actions = [
    new WalletCreateAction(systemClock),
    new WalletDepositMoneyAction(systemClock, wallets),
    new WalletCloseAction(systemClock, wallets),
    new NotifyRecipientAction(systemClock),
  ];
  const executor = new ActionExecutor({ namespace, databases, repositories, actions, groupCommit: true });
  const { id: walletId } = await executor.execute(principal, WalletCreateAction, {
    country: 'DE',
    ownerId: owner,
    currency: 'EUR',
    initialBalance: new Big('100'),
  });
  return { databases, wallets, notifications, executor, walletId };
}

describe('the pages about actions and models', () => {
  test('show how an action is executed, typed by its class', async () => {
    const { executor, walletId } = await openService();
    const wallet = await executor.execute(principal, WalletCloseAction, { walletId });
    expect(wallet.state).toBe('CLOSED');
  });

  test('show how an action is executed once under a key', async () => {
    const { executor, wallets, walletId } = await openService();
    const params = { walletId, amount };
    for (let time = 0; time < 2; time++)
      await executor.execute(principal, WalletDepositMoneyAction, params, { idempotencyKey: 'order-4711' });
    expect((await wallets.getById(walletId)).balance.toFixed()).toBe('125.5');
  });

  test('show how one line tells two models of the same shape apart', () => {
    class Invoice extends Model<Invoice, ShardedId<Invoice>, 'OPEN' | 'PAID'> {
      declare protected readonly brand: 'Invoice';
    }
    class Order extends Model<Order, ShardedId<Order>, 'OPEN' | 'PAID'> {}
    const id: ShardedId<Order> = ShardedId.generate(Order, shard);
    // @ts-expect-error the id of an order is not the id of an invoice
    const wrong: New<Invoice>['id'] = id;
    expect(wrong).toBe(id);
  });
});

describe('the pages about handlers', () => {
  test('show how a handler is run and its dead letters are replayed', async () => {
    const { databases, notifications, executor, walletId } = await openService();
    const delivery = new Delivery({ databases, executor, handlers: [new NotifyRecipientOnDeposit()] });
    delivery.start();
    await delivery.started();
    await executor.execute(principal, WalletDepositMoneyAction, { walletId, amount, recipient: 'ana' });
    await expect.poll(() => notifications.findAll()).toHaveLength(1);

    const operator = new DeliveryOperator(databases);
    await operator.replay({ handler: 'notify-recipient-on-deposit' }, { dryRun: true }); // how many
    await operator.replay({ handler: 'notify-recipient-on-deposit' });
    expect((await operator.findBlocked({ dead: true })).items).toEqual([]);
    await delivery.stop();
  });

  test('warn of a handler that takes an error for an answer', async () => {
    const executed: unknown[] = [];
    const execute = async (action: unknown): Promise<void> => {
      executed.push(action);
      if (action === WalletDepositMoneyAction) throw new WalletClosedError('the wallet');
    };
    const context = { execute } as unknown as HandlerContext;
    const transfer = Transfer.initiate(
      walletOf('100'),
      walletOf('0', { shard: mexico }).id,
      amount,
      new Date(0),
    );
    const { id: transferId, destId } = transfer;
    try {
      await context.execute(WalletDepositMoneyAction, { walletId: destId, amount });
    } catch (error) {
      if (!(error instanceof WalletError)) throw error;
      await context.execute(RefundTransferAction, { transferId, reason: error.code }); // Wrong
    }
    expect(executed).toEqual([WalletDepositMoneyAction, RefundTransferAction]);
  });
});

describe('the pages about tests', () => {
  test('show how an action is specified', async () => {
    const wallet = walletOf('100');
    const spec = specification({
      models: [Wallet],
      actions: ({ clock, repository }) => [new WalletDepositMoneyAction(clock, repository(Wallet))],
    });
    await spec
      .given(wallet)
      .when(WalletDepositMoneyAction, { walletId: wallet.id, amount: new Big('25.50') })
      .thenEvents(new WalletMoneyDepositedEvent(wallet.id, new Big('25.50'), new Big('125.50')));
  });

  test('show how actions and handlers are specified together', async () => {
    const spec = specification({
      models: [Wallet, Transfer],
      shards: [global, mexico],
      actions: ({ clock, repository }) => [
        new WalletDepositMoneyAction(clock, repository(Wallet)),
        new SettleTransferAction(clock, repository(Transfer)),
      ],
      handlers: () => [new SettleTransfer()],
    });
    const destination = walletOf('0', { shard: mexico });
    const transfer = Transfer.initiate(walletOf('100'), destination.id, amount, new Date(0));
    const arrival = { transferId: transfer.id, destId: destination.id };
    const decisionId = TransferDecision.idOf(arrival);
    await spec
      .given(transfer)
      .whenHandled(new TransferReceivedEvent(decisionId, transfer.id, destination.id, amount, 'EUR'))
      .thenModels(like(Transfer, { state: 'COMPLETED' }));
  });

  test('show how a test ignores irrelevant fields', () => {
    const refunded = like(Transfer, { state: 'REFUNDED', reason: 'wallet-closed' }); // whatever its id
    expect(refunded).toBeDefined();
  });

  test('show how a query is written for memory', async () => {
    class MemoryWallets extends MemoryRepository<Wallet> {
      constructor(databases: DatabaseRegistry) {
        super({ model: Wallet, databases });
      }

      findByOwner(ownerId: string): Promise<readonly Wallet[]> {
        return this.findAllWhere((wallet) => wallet.ownerId === ownerId);
      }
    }

    const spec = specification({
      models: [MemoryWallets],
      actions: ({ clock, repository }) => [new WalletDepositMoneyAction(clock, repository(MemoryWallets))],
    });
    const environment = await spec.given(walletOf('100')).environment();
    expect(await environment.repository(MemoryWallets).findByOwner(owner)).toHaveLength(1);
  });

  test('show how faults are injected into in-memory databases', async () => {
    const clock = new VirtualClock();
    const faults = new MemoryFaults();
    const databases = openDatabases(memorySharding(shard), memory({ faults }));
    // Every read is answered late, so that others commit in between; every second write loses its answer.
    let writes = 0;
    faults.inject(async ({ operation, way }) => {
      if (operation === 'read' && way === 'answer') await clock.sleep(100);
      if (operation === 'persist' && way === 'answer' && writes++ % 2 === 1) throw new ConnectionLostError();
    });
    const read = new MemoryRepository({ model: Wallet, databases }).findById(walletOf('100').id);
    await clock.advance(100);
    expect(await read).toBeUndefined();
  });

  test('show how an in-memory database fails over', () => {
    const clock = new VirtualClock();
    const faults = new MemoryFaults();
    const server = new MemoryServer(memorySharding(shard), { clock });
    const databases = openDatabases(memorySharding(shard), memory({ server, faults }));
    const replica = server.tables(shard).snapshot();
    server.tables(shard).failOver(replica); // what was committed in between is lost
    expect(databases.shards).toEqual([shard]);
  });

  describe('on PostgreSQL', async () => {
    const database = await createTestDatabase();
    afterAll(() => database.drop());

    test('show how a test gets an empty database', () => {
      expect(new URL(database.url).protocol).toMatch(/^postgres/);
    });
  });
});

import {
  type ExecutionConfiguration,
  ShardIdentifier,
  ShardedId,
  parseFrameworkConfig,
} from '@framework/core';
import { openService } from '@framework/service';
import { Big } from 'big.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { walletService } from '../src/wallet-service.js';
import type { WalletService } from '../src/composition.js';
import { InitiateTransferAction } from '../src/transfer/initiate-transfer-action.js';
import { CompleteTransferAction, RefundTransferAction } from '../src/transfer/transfer-saga.js';
import type { Transfer } from '../src/transfer/transfer.js';
import { WalletCloseAction } from '../src/wallet/wallet-close-action.js';
import { WalletCreateAction } from '../src/wallet/wallet-create-action.js';
import { WalletDepositMoneyAction } from '../src/wallet/wallet-deposit-money-action.js';
import { Wallet } from '../src/wallet/wallet.js';
import { createShardDatabases } from './database-logins.js';
import { rowsOf } from './database-session.js';
import { moneyByCurrency } from './money-in-all.js';
import { type ShardDatabases, configTree } from './start-test-service.js';
import { anOwner } from './wallet-client.js';

const principal = { name: 'test' };
const raceCount = 8;

let shards: ShardDatabases;
/** Two processes: nothing but the database keeps their executions apart. */
let services: readonly [WalletService, WalletService];

beforeAll(async () => {
  shards = await createShardDatabases();
  const config = parseFrameworkConfig(configTree(shards));
  const service = (): WalletService => openService(walletService, config, { delivers: false });
  services = [service(), service()];
  await Promise.all(services.map(({ databases }) => databases.ready()));
});
afterAll(async () => {
  await Promise.all(services.map(({ delivery }) => delivery.stop()));
  await Promise.all(services.map(({ databases }) => databases.close()));
  await Promise.all([shards.global.drop(), shards.mexico.drop()]);
});

describe('two concurrent processes', () => {
  test.each([
    ['receive', 'RECEIVED', async () => (await open('MX')).id],
    ['refuse', 'REFUSED', async () => ShardedId.generate(Wallet, ShardIdentifier.of(1, 0))],
  ])('%s a transfer once, and receive the same answer', async (_what, state, destination) => {
    for (let race = 0; race < raceCount; race++) {
      const source = await open('DE');
      const { id: transferId, destId, amount, currency } = await initiate(source.id, await destination());
      const params = { transferId, destId, amount, currency };
      const money = await moneyByCurrency(shards);
      const decisions = await Promise.all(
        [...services, ...services].map(({ executor }) =>
          executor.execute(principal, CompleteTransferAction, params, byHandler(transferId)),
        ),
      );
      for (const decision of decisions) expect(decision).toMatchObject({ state, transferId });
      expect(new Set(decisions.map(({ createdDate }) => createdDate.getTime())).size).toBe(1);
      const stored = 'select state from transfer_decisions where transfer_id = $1';
      expect(await rowsOf(shards.mexico, stored, [transferId.value])).toEqual([{ state }]);
      expect(await moneyByCurrency(shards)).toEqual(money);
    }
  });

  test('close a wallet and receive a transfer in one order or the other', async () => {
    for (let race = 0; race < raceCount; race++) {
      const [source, dest] = [await open('DE'), await open('MX')];
      const { id: transferId, destId, amount, currency } = await initiate(source.id, dest.id);
      const money = await moneyByCurrency(shards);
      const [decision] = await Promise.all([
        services[0].executor.execute(
          principal,
          CompleteTransferAction,
          { transferId, destId, amount, currency },
          byHandler(transferId),
        ),
        services[1].executor.execute(principal, WalletCloseAction, { walletId: dest.id }),
      ]);
      const { balance, state } = await services[0].wallets.getById(dest.id);
      expect(state).toBe('CLOSED');
      expect(balance.toFixed()).toBe(decision.state === 'RECEIVED' ? '101' : '100');
      expect(await moneyByCurrency(shards)).toEqual(money);
    }
  });

  test('refund once while the source is closed or filled up', async () => {
    for (let race = 0; race < raceCount; race++) {
      const [source, dest] = [await open('DE', '99999999999999999999'), await open('MX')];
      const { id: transferId } = await initiate(source.id, dest.id);
      const refund = { transferId, reason: 'wallet-closed' };
      const outcomes = await Promise.allSettled([
        services[0].executor.execute(principal, RefundTransferAction, refund, byHandler(transferId)),
        services[1].executor.execute(principal, RefundTransferAction, refund, byHandler(transferId)),
        services[0].executor.execute(principal, WalletDepositMoneyAction, {
          walletId: source.id,
          amount: new Big(1),
        }),
        services[1].executor.execute(principal, WalletCloseAction, { walletId: source.id }),
      ]);
      expect(outcomes.slice(0, 2).map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled']);
      expect(outcomes[3].status).toBe('fulfilled');
      const { balance } = await services[0].wallets.getById(source.id);
      const deposited = outcomes[2].status === 'fulfilled' ? 1 : 0;
      expect(balance.toFixed()).toBe(new Big('99999999999999999999').plus(deposited).toFixed());
    }
  });
});

async function open(country: string, initialBalance = '100'): Promise<Wallet> {
  const wallet = { country, ownerId: anOwner, currency: 'EUR', initialBalance: new Big(initialBalance) };
  return services[0].executor.execute(principal, WalletCreateAction, wallet);
}

function initiate(sourceId: ShardedId<Wallet>, destId: ShardedId<Wallet>): Promise<Transfer> {
  const params = { sourceId, destId, amount: new Big(1) };
  return services[0].executor.execute(principal, InitiateTransferAction, params);
}

/** Only handlers may execute the steps of a transfer. */
function byHandler(transferId: ShardedId<Transfer>): ExecutionConfiguration {
  const shard = transferId.resolveShardIdentifier();
  return { handledEvent: { handler: 'by-hand', eventId: transferId.value, shard } };
}

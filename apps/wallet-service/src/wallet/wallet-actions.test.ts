import { Id } from '@framework/core';
import { type TestEnvironment, like } from '@framework/testing/specification';
import { Big } from 'big.js';
import { describe, expect, test } from 'vitest';

import {
  global,
  mexico,
  ownerId,
  walletSpecification as spec,
  walletOf,
} from '../../test/wallet-specification.js';
import { WalletTransferAction } from '../transfer/wallet-transfer-action.js';
import { WalletCloseAction } from './wallet-close-action.js';
import { WalletCreateAction } from './wallet-create-action.js';
import { WalletDepositMoneyAction } from './wallet-deposit-money-action.js';
import { InvalidAmountError } from './wallet-error.js';
import { WalletWithdrawMoneyAction } from './wallet-withdraw-money-action.js';
import {
  Wallet,
  WalletClosedEvent,
  WalletCreatedEvent,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
} from './wallet.js';

const wallet = walletOf('100');

describe('WalletCreateAction', () => {
  test.each([
    ['MX', mexico],
    ['DE', global],
    ['mx', global],
  ])('opens a wallet of %j on %s', async (country, shard) => {
    const opened = { ownerId, currency: 'EUR', balance: new Big('12.50') };
    const environment = await spec
      .when(WalletCreateAction, { country, ownerId, currency: 'EUR', initialBalance: new Big('12.50') })
      .thenExpect({
        result: like(Wallet, { ...opened, state: 'OPENED', version: 1, events: [] }),
        events: [like(WalletCreatedEvent, { ownerId, currency: 'EUR', initialBalance: new Big('12.50') })],
        models: [like(Wallet, opened)],
      });
    expect(environment.commits.map((commit) => commit.shard)).toEqual([shard]);
  });
});

describe('WalletDepositMoneyAction', () => {
  const amount = new Big('25.50');

  test('updates the wallet and logs its exact amount and new balance', async () => {
    const deposit = { walletId: wallet.id, amount, recipient: 'bob' };
    const environment = await spec
      .given(wallet)
      .when(WalletDepositMoneyAction, deposit)
      .thenExpect({
        result: like(Wallet, { version: 2, balance: new Big('125.50') }),
        events: [new WalletMoneyDepositedEvent(wallet.id, amount, new Big('125.50'))],
        models: [wallet.deposit(amount)],
      });
    expect(environment.events).toMatchObject([
      {
        actionName: 'WalletDepositMoneyAction',
        actionParams: { walletId: wallet.id.value, amount: '25.5', recipient: 'bob' },
        payload: { amount: '25.5', newBalance: '125.5' },
      },
    ]);
  });

  test.each([wallet.id.value, wallet.id.value.toUpperCase()])('accepts the plain id %s', async (text) => {
    const environment = await spec
      .given(wallet)
      .when(WalletDepositMoneyAction, { walletId: Id.of(Wallet, text), amount })
      .thenModels(wallet.deposit(amount));
    expect(environment.events).toMatchObject([{ actionParams: { walletId: wallet.id.value } }]);
  });

  test('refuses params that are not amounts', async () => {
    const deposit = { walletId: wallet.id, amount: 25.5 as unknown as Big };
    await spec.given(wallet).when(WalletDepositMoneyAction, deposit).thenThrows('invalid-params');
  });
});

test('WalletWithdrawMoneyAction takes money out', async () => {
  await spec
    .given(wallet)
    .when(WalletWithdrawMoneyAction, { walletId: wallet.id, amount: new Big('0.01') })
    .thenEvents(new WalletMoneyWithdrawnEvent(wallet.id, new Big('0.01'), new Big('99.99')));
});

test('WalletCloseAction closes the wallet', async () => {
  await spec
    .given(wallet)
    .when(WalletCloseAction, { walletId: wallet.id })
    .thenExpect({
      result: like(Wallet, { state: 'CLOSED', version: 2 }),
      events: [new WalletClosedEvent(wallet.id)],
    });
});

describe('WalletTransferAction', () => {
  const amount = new Big('2.50');
  const source = walletOf('10');
  const destination = walletOf('0');
  const otherDatabaseShard = walletOf('0', { shard: mexico });

  test('changes both wallets in one commit, and returns nothing', async () => {
    const environment = await spec
      .given(source, destination)
      .when(WalletTransferAction, { sourceId: source.id, destId: destination.id, amount })
      .thenExpect({
        result: undefined,
        events: [
          new WalletMoneyWithdrawnEvent(source.id, amount, new Big('7.50')),
          new WalletMoneyDepositedEvent(destination.id, amount, amount),
        ],
        models: [source.withdraw(amount), destination.deposit(amount)],
      });
    expect(environment.commits).toHaveLength(1);
  });

  test('crosses shards only where the caller allows it', async () => {
    const given = spec.given(source, otherDatabaseShard);
    const params = { sourceId: source.id, destId: otherDatabaseShard.id, amount };
    await given.when(WalletTransferAction, params).thenThrows('cross-shard');
    const environment = await given
      .when(WalletTransferAction, params, { allowCrossShard: true })
      .thenModels(source.withdraw(amount), otherDatabaseShard.deposit(amount));
    expect(environment.commits.map(({ shard }) => shard)).toEqual([global, mexico]);
  });

  test.each([
    ['invalid-amount', source, destination, '0'],
    ['invalid-amount', source, destination, '0.001'],
    ['insufficient-funds', source, destination, '10.01'],
    ['currency-mismatch', source, walletOf('0', { currency: 'USD' }), '1'],
    ['wallet-closed', source, destination.close(), '1'],
    ['wallet-closed', source.close(), destination, '1'],
  ])('refuses with %s and writes nothing', async (code, from, to, text) => {
    const params = { sourceId: from.id, destId: to.id, amount: new Big(text) };
    await spec.given(from, to).when(WalletTransferAction, params).thenThrows(code);
  });

  test('refuses a missing wallet', async () => {
    const params = { sourceId: source.id, destId: destination.id, amount };
    await spec.given(source).when(WalletTransferAction, params).thenThrows('entity-not-found');
  });

  test('refuses to move money from a wallet to itself, whatever the amount', async () => {
    const params = { sourceId: source.id, destId: source.id, amount: new Big(-1) };
    await spec.given(source).when(WalletTransferAction, params).thenThrows('same-wallet');
  });

  test('reports an amount that is not positive', async () => {
    const params = { sourceId: source.id, destId: destination.id, amount: new Big(0) };
    const execution = spec.given(source, destination).when(WalletTransferAction, params);
    await execution.thenThrows(InvalidAmountError);
    await expect(execution.thenResult(undefined)).rejects.toThrow('Transfer amount must be positive');
  });
});

const keyed = { idempotencyKey: 'k-1' };

test.each<[string, (environment: TestEnvironment) => Promise<Wallet>]>([
  [
    'opens a wallet',
    (environment) => {
      const params = { country: 'DE', ownerId, currency: 'EUR', initialBalance: new Big('12.50') };
      return environment.execute(WalletCreateAction, params, keyed);
    },
  ],
  [
    'puts money in',
    (environment) =>
      environment.execute(WalletDepositMoneyAction, { walletId: wallet.id, amount: new Big('25.50') }, keyed),
  ],
  [
    'takes money out',
    (environment) =>
      environment.execute(WalletWithdrawMoneyAction, { walletId: wallet.id, amount: new Big('0.01') }, keyed),
  ],
  [
    'closes the wallet',
    (environment) => environment.execute(WalletCloseAction, { walletId: wallet.id }, keyed),
  ],
])('a request that %s has one effect and one answer when repeated under its key', async (_what, ask) => {
  const environment = await spec.given(wallet).environment();
  const answer = await ask(environment);
  expect(await ask(environment)).toEqual(answer);
  expect(environment.commits).toHaveLength(1);
});

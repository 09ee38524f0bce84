import { like } from '@framework/testing/specification';
import { Big } from 'big.js';
import { describe, test } from 'vitest';

import { walletSpecification as spec, walletOf } from '../../test/wallet-specification.js';
import { WalletDepositMoneyAction } from '../wallet/wallet-deposit-money-action.js';
import { WalletMoneyDepositedEvent } from '../wallet/wallet.js';
import { Notification } from './notify-recipient.js';

const wallet = walletOf('100');
const amount = new Big('5.00');
const deposited = new WalletMoneyDepositedEvent(wallet.id, amount, new Big('105'));
const notification = like(Notification, {
  walletId: wallet.id,
  recipient: 'ana@example.com',
  text: '5 was deposited; the balance is 105',
});

describe('NotifyRecipientOnDeposit', () => {
  test('notifies the recipient of a deposit once', async () => {
    await spec
      .given(wallet)
      .whenHandled(deposited, { actionParams: { recipient: 'ana@example.com' }, times: 2 })
      .thenExpect({ events: [], models: [notification] });
  });

  test('notifies nobody when a deposit names no recipient', async () => {
    await spec.given(wallet).whenHandled(deposited).thenNothing();
  });

  test('reads the recipient from the params of the deposit', async () => {
    await spec
      .given(wallet)
      .when(WalletDepositMoneyAction, { walletId: wallet.id, amount, recipient: 'ana@example.com' })
      .delivered()
      .thenModels(wallet.deposit(amount), notification);
  });
});

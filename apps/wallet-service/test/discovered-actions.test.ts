import { ActionRegistry, systemClock } from '@framework/core';
import type { AnyAction } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { NotifyRecipientAction } from '../src/notification/notify-recipient.js';
import { InitiateTransferAction } from '../src/transfer/initiate-transfer-action.js';
import {
  CompleteTransferAction,
  RefundTransferAction,
  SettleTransferAction,
} from '../src/transfer/transfer-saga.js';
import { WalletTransferAction } from '../src/transfer/wallet-transfer-action.js';
import { WalletCloseAction } from '../src/wallet/wallet-close-action.js';
import { WalletCreateAction } from '../src/wallet/wallet-create-action.js';
import { WalletDepositMoneyAction } from '../src/wallet/wallet-deposit-money-action.js';
import { WalletWithdrawMoneyAction } from '../src/wallet/wallet-withdraw-money-action.js';

test('every action is marked for discovery', () => {
  const made = new Set<unknown>();
  ActionRegistry.discover((action) => {
    made.add(action);
    return new (action as unknown as new (...args: readonly unknown[]) => AnyAction)(systemClock);
  });
  const marked = [
    WalletCreateAction,
    WalletDepositMoneyAction,
    WalletWithdrawMoneyAction,
    WalletCloseAction,
    WalletTransferAction,
    InitiateTransferAction,
    SettleTransferAction,
    CompleteTransferAction,
    RefundTransferAction,
    NotifyRecipientAction,
  ];
  expect(made).toEqual(new Set(marked));
});

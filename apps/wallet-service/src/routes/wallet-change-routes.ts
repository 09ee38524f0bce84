import { type Route, route, textField, uuidField } from '@framework/http';
import * as z from 'zod';

import { WalletCloseAction } from '../wallet/wallet-close-action.js';
import { WalletDepositMoneyAction } from '../wallet/wallet-deposit-money-action.js';
import { WalletWithdrawMoneyAction } from '../wallet/wallet-withdraw-money-action.js';
import { Wallet } from '../wallet/wallet.js';
import { amountField } from './amount-field.js';
import { walletReply, walletSchema } from './resources.js';

const change = {
  tag: 'Wallets',
  path: z.object({ id: uuidField }),
  model: Wallet,
  answers: { 200: 'The wallet after the change' },
  answer: walletSchema,
  versioned: true,
  checksVersion: true,
} as const;

const problems = [
  'wallet-not-found',
  'wallet-closed',
  'stale-record',
  'precondition-failed',
  'shard-unavailable',
  'outcome-unknown',
];

const deposit = z
  .strictObject({
    amount: amountField,
    recipient: textField.optional().meta({ description: 'Who is notified of the deposit.' }),
  })
  .meta({ id: 'Deposit' });

const withdrawal = z.strictObject({ amount: amountField }).meta({ id: 'Withdrawal' });

/** Changes of one wallet. */
export const walletChangeRoutes: readonly Route[] = [
  route.post(
    '/wallets/{id}/deposit',
    {
      ...change,
      action: WalletDepositMoneyAction,
      summary: 'Put money into a wallet',
      body: deposit,
      problems: [...problems, 'invalid-amount'],
    },
    async ({ path, body, expectedVersions, execute, idOf }) => {
      const params = {
        walletId: idOf(Wallet, path.id),
        ...body,
        ...(expectedVersions && { expectedVersions }),
      };
      return walletReply(await execute(WalletDepositMoneyAction, params));
    },
  ),
  route.post(
    '/wallets/{id}/withdraw',
    {
      ...change,
      action: WalletWithdrawMoneyAction,
      summary: 'Take money out of a wallet',
      body: withdrawal,
      problems: [...problems, 'invalid-amount', 'insufficient-funds'],
    },
    async ({ path, body, expectedVersions, execute, idOf }) => {
      const params = {
        walletId: idOf(Wallet, path.id),
        ...body,
        ...(expectedVersions && { expectedVersions }),
      };
      return walletReply(await execute(WalletWithdrawMoneyAction, params));
    },
  ),
  route.post(
    '/wallets/{id}/close',
    {
      ...change,
      action: WalletCloseAction,
      summary: 'Close a wallet for good',
      body: z.strictObject({}),
      bodyOptional: true,
      problems,
    },
    async ({ path, expectedVersions, execute, idOf }) => {
      const params = { walletId: idOf(Wallet, path.id), ...(expectedVersions && { expectedVersions }) };
      return walletReply(await execute(WalletCloseAction, params));
    },
  ),
];

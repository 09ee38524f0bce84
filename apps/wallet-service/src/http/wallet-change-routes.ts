import { z } from '@hono/zod-openapi';

import { WalletCloseAction } from '../wallet/wallet-close-action.js';
import { WalletDepositMoneyAction } from '../wallet/wallet-deposit-money-action.js';
import { WalletWithdrawMoneyAction } from '../wallet/wallet-withdraw-money-action.js';
import { Wallet } from '../wallet/wallet.js';
import type { ProblemCode } from './problem-kinds.js';
import { decimalField, existingId, textField, uuidField } from './request-fields.js';
import { walletReply, walletSchema } from './resources.js';
import { serve } from './serve.js';
import { shardsIn } from './shard-capacity.js';
import type { WalletApp, WalletService } from './wallet-app-env.js';

const change = {
  method: 'post',
  tag: 'Wallets',
  pathFields: z.object({ id: uuidField }),
  shardsOf: ({ path }: { readonly path: { readonly id: string } }) => shardsIn(path.id),
  model: Wallet,
  answers: { 200: 'The wallet after the change' },
  answer: walletSchema,
  versioned: true,
} as const;

const changeProblems: readonly ProblemCode[] = [
  ...(['wallet-not-found', 'wallet-closed', 'stale-record', 'precondition-failed'] as const),
  ...(['shard-unavailable', 'outcome-unknown'] as const),
];

const deposit = z
  .strictObject({
    amount: decimalField,
    recipient: textField.optional().openapi({ description: 'Who is notified of the deposit.' }),
  })
  .openapi('Deposit');

const withdrawal = z.strictObject({ amount: decimalField }).openapi('Withdrawal');

/** Serves changes of a wallet. */
export function walletChangeRoutes(app: WalletApp, { databases, executor }: WalletService): void {
  serve(
    app,
    {
      ...change,
      path: '/wallets/{id}/deposit',
      action: WalletDepositMoneyAction,
      summary: 'Put money into a wallet',
      body: deposit,
      problems: [...changeProblems, 'invalid-amount'],
    },
    async ({ path, body, expectedVersions, principal, execution }) => {
      const walletId = existingId(Wallet, path.id, databases);
      const params = { walletId, ...body, ...(expectedVersions && { expectedVersions }) };
      return walletReply(await executor.execute(principal, WalletDepositMoneyAction, params, execution));
    },
  );

  serve(
    app,
    {
      ...change,
      path: '/wallets/{id}/withdraw',
      action: WalletWithdrawMoneyAction,
      summary: 'Take money out of a wallet',
      body: withdrawal,
      problems: [...changeProblems, 'invalid-amount', 'insufficient-funds'],
    },
    async ({ path, body, expectedVersions, principal, execution }) => {
      const walletId = existingId(Wallet, path.id, databases);
      const params = { walletId, ...body, ...(expectedVersions && { expectedVersions }) };
      return walletReply(await executor.execute(principal, WalletWithdrawMoneyAction, params, execution));
    },
  );

  serve(
    app,
    {
      ...change,
      path: '/wallets/{id}/close',
      action: WalletCloseAction,
      summary: 'Close a wallet for good',
      body: z.strictObject({}),
      bodyOptional: true,
      problems: changeProblems,
    },
    async ({ path, expectedVersions, principal, execution }) => {
      const walletId = existingId(Wallet, path.id, databases);
      const params = { walletId, ...(expectedVersions && { expectedVersions }) };
      return walletReply(await executor.execute(principal, WalletCloseAction, params, execution));
    },
  );
}

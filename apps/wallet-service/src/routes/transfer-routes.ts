import { type Route, route, shardsIn, uuidField } from '@framework/http';
import * as z from 'zod';

import { InitiateTransferAction } from '../transfer/initiate-transfer-action.js';
import { Transfer } from '../transfer/transfer.js';
import type { WalletService } from '../composition.js';
import { Wallet } from '../wallet/wallet.js';
import { amountField } from './amount-field.js';
import { transferReply, transferSchema } from './resources.js';

const newTransfer = z
  .strictObject({ sourceId: uuidField, destId: uuidField, amount: amountField })
  .meta({ id: 'NewTransfer' });

/** Initiating and reading transfers. */
export function transferRoutes({ access, transfers }: WalletService): readonly Route[] {
  return [
    route.post(
      '/transfers',
      {
        tag: 'Transfers',
        summary: 'Move money from one wallet to another',
        description:
          'The money leaves the source at once. Read the transfer to see whether it has arrived ' +
          '(COMPLETED) or, if the destination refused it, has been returned (REFUNDED, with the reason).',
        body: newTransfer,
        model: Transfer,
        action: InitiateTransferAction,
        shards: ({ body }) => shardsIn(body.sourceId),
        answers: { 202: 'The transfer; `Location` has its address' },
        answer: transferSchema,
        versioned: true,
        problems: [
          'invalid-amount',
          'same-wallet',
          'insufficient-funds',
          'wallet-not-found',
          'wallet-closed',
          'stale-record',
          'shard-unavailable',
          'outcome-unknown',
        ],
      },
      async ({ body: { sourceId, destId, amount }, execute, idOf }) => {
        const params = { sourceId: idOf(Wallet, sourceId), destId: idOf(Wallet, destId), amount };
        const reply = transferReply(await execute(InitiateTransferAction, params));
        return { ...reply, status: 202, location: reply.resource.address };
      },
    ),
    route.get(
      '/transfers/{id}',
      {
        tag: 'Transfers',
        summary: 'Read a transfer',
        path: z.object({ id: uuidField }),
        model: Transfer,
        answers: { 200: 'The transfer' },
        answer: transferSchema,
        versioned: true,
        problems: ['transfer-not-found', 'precondition-failed', 'shard-unavailable'],
      },
      async ({ path, principal, idOf }) => {
        const transfer = await transfers.getById(idOf(Transfer, path.id));
        await access.assertReadable(principal, transfer);
        return transferReply(transfer);
      },
    ),
  ];
}

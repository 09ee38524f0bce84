import { z } from '@hono/zod-openapi';

import { InitiateTransferAction } from '../transfer/initiate-transfer-action.js';
import { Transfer } from '../transfer/transfer.js';
import { Wallet } from '../wallet/wallet.js';
import { decimalField, existingId, uuidField } from './request-fields.js';
import { transferReply, transferSchema } from './resources.js';
import { serve } from './serve.js';
import { shardsIn } from './shard-capacity.js';
import type { WalletApp, WalletService } from './wallet-app-env.js';

const newTransfer = z
  .strictObject({ sourceId: uuidField, destId: uuidField, amount: decimalField })
  .openapi('NewTransfer');

/** Serves creating and reading transfers. */
export function transferRoutes(
  app: WalletApp,
  { access, databases, executor, transfers }: WalletService,
): void {
  serve(
    app,
    {
      method: 'post',
      path: '/transfers',
      tag: 'Transfers',
      summary: 'Move money from one wallet to another',
      description:
        'The money leaves the source at once. Read the transfer to see whether it has arrived ' +
        '(COMPLETED) or, if the destination refused it, has been returned (REFUNDED, with the reason).',
      body: newTransfer,
      model: Transfer,
      action: InitiateTransferAction,
      shardsOf: ({ body }) => shardsIn(body.sourceId),
      answers: { 202: 'The transfer; `Location` has its address' },
      answer: transferSchema,
      versioned: true,
      problems: [
        ...(['invalid-amount', 'same-wallet', 'insufficient-funds'] as const),
        ...([
          'wallet-not-found',
          'wallet-closed',
          'stale-record',
          'shard-unavailable',
          'outcome-unknown',
        ] as const),
      ],
    },
    async ({ body, principal, execution }) => {
      const sourceId = existingId(Wallet, body.sourceId, databases);
      const destId = existingId(Wallet, body.destId, databases);
      const params = { sourceId, destId, amount: body.amount };
      const transfer = await executor.execute(principal, InitiateTransferAction, params, execution);
      const reply = transferReply(transfer);
      return { ...reply, status: 202, location: reply.resource.address };
    },
  );

  serve(
    app,
    {
      method: 'get',
      path: '/transfers/{id}',
      tag: 'Transfers',
      summary: 'Read a transfer',
      pathFields: z.object({ id: uuidField }),
      model: Transfer,
      shardsOf: ({ path }) => shardsIn(path.id),
      answers: { 200: 'The transfer' },
      answer: transferSchema,
      versioned: true,
      problems: ['transfer-not-found', 'precondition-failed', 'shard-unavailable'],
    },
    async ({ path, principal }) => {
      const transfer = await transfers.getById(existingId(Transfer, path.id, databases));
      await access.assertReadable(principal, transfer);
      return transferReply(transfer);
    },
  );
}

import { modelNameOf } from '@framework/core';
import { z } from '@hono/zod-openapi';
import { Wallet } from '../../wallet/wallet.js';
import { serve } from '../operation/serve.js';
import { existingId } from '../request/existing-id.js';
import { cursorNote, limitField } from '../request/page-query.js';
import { uuidField } from '../request/uuid-field.js';
import { eventResource, eventSchema } from '../resource/event-resource.js';
import { pageOf } from '../resource/page-of.js';
import type { WalletApp } from '../wallet-app-env.js';
import type { WalletService } from '../wallet-service.js';

/** Serves the history of wallets. */
export function walletEventRoutes(app: WalletApp, { databases, wallets }: WalletService): void {
  serve(
    app,
    {
      method: 'get',
      path: '/wallets/{id}/events',
      tag: 'Wallets',
      summary: 'Read the history of a wallet',
      description: 'From the log of its shard, oldest first.',
      pathFields: z.object({ id: uuidField }),
      query: z.strictObject({
        limit: limitField,
        cursor: z.string().optional().openapi({ description: cursorNote }),
      }),
      answers: { 200: 'One page' },
      answer: pageOf(eventSchema),
      problems: ['wallet-not-found', 'shard-unavailable'],
    },
    async ({ path, query }) => {
      const { id } = await wallets.getById(existingId(Wallet, path.id, databases));
      const { log } = databases.transactionManager(id.resolveShardIdentifier());
      const { items, next } = await log.findByModel(
        { name: modelNameOf(Wallet), id: id.value },
        { limit: query.limit, after: query.cursor },
      );
      return { body: { items: items.map(eventResource), next: next ?? null } };
    },
  );
}

import { type Route, cursorNote, limitField, pageOf, route, textField, uuidField } from '@framework/http';
import { modelNameOf } from '@framework/core/adapter';
import { Big } from 'big.js';
import * as z from 'zod';

import type { WalletService } from '../composition.js';
import { WalletCreateAction } from '../wallet/wallet-create-action.js';
import { placementOf } from '../wallet/placement.js';
import { Wallet } from '../wallet/wallet.js';
import { amountField } from './amount-field.js';
import { eventResource, eventSchema, walletReply, walletResource, walletSchema } from './resources.js';

const newWallet = z
  .strictObject({
    country: textField.meta({ description: 'Determines the shard permanently.', example: 'MX' }),
    ownerId: uuidField,
    currency: textField.meta({ description: 'An ISO 4217 code.', example: 'MXN' }),
    initialBalance: amountField.default(new Big(0)).meta({ default: '0', example: '100.00' }),
  })
  .meta({ id: 'NewWallet' });

/** Opening, reading and listing wallets, and their history. */
export function walletRoutes({ access, databases, wallets }: WalletService): readonly Route[] {
  return [
    route.post(
      '/wallets',
      {
        tag: 'Wallets',
        summary: 'Open a wallet',
        description: 'A wallet of country MX is stored on shard (1, 0), any other on shard (0, 0).',
        body: newWallet,
        model: Wallet,
        action: WalletCreateAction,
        shards: ({ body }) => [placementOf(body.country)],
        answers: { 201: 'The new wallet; `Location` has its address' },
        answer: walletSchema,
        versioned: true,
        problems: ['invalid-amount', 'unknown-currency', 'shard-unavailable', 'outcome-unknown', 'forbidden'],
      },
      async ({ body, execute }) => {
        const reply = walletReply(await execute(WalletCreateAction, body));
        return { ...reply, status: 201, location: reply.resource.address };
      },
    ),
    route.get(
      '/wallets/{id}',
      {
        tag: 'Wallets',
        summary: 'Read a wallet',
        path: z.object({ id: uuidField }),
        model: Wallet,
        answers: { 200: 'The wallet' },
        answer: walletSchema,
        versioned: true,
        problems: ['wallet-not-found', 'precondition-failed', 'shard-unavailable'],
      },
      async ({ path, principal, idOf }) => walletReply(await access.wallet(principal, idOf(Wallet, path.id))),
    ),
    route.get(
      '/wallets',
      {
        tag: 'Wallets',
        summary: 'List the wallets of an owner',
        description: 'Over all shards, oldest first.',
        query: z.strictObject({
          ownerId: uuidField,
          limit: limitField,
          cursor: uuidField.optional().meta({ description: cursorNote }),
        }),
        model: Wallet,
        shards: () => databases.shards,
        answers: { 200: 'One page' },
        answer: pageOf(walletSchema),
        problems: ['shard-unavailable'],
      },
      async ({ query, principal }) => {
        const page = { limit: query.limit, after: query.cursor };
        const { items, next } = await wallets.findPageByOwner(query.ownerId, page);
        // As for an owner without wallets, also if the cursor is invalid or a shard is down.
        if (!access.mayRead(principal, query.ownerId)) return { body: { items: [], next: null } };
        return { body: { items: items.map(walletResource), next: next ?? null } };
      },
    ),
    route.get(
      '/wallets/{id}/events',
      {
        tag: 'Wallets',
        summary: 'Read the history of a wallet',
        description: 'From the log of its shard, oldest first.',
        path: z.object({ id: uuidField }),
        query: z.strictObject({
          limit: limitField,
          cursor: z.string().optional().meta({ description: cursorNote }),
        }),
        model: Wallet,
        answers: { 200: 'One page' },
        answer: pageOf(eventSchema),
        problems: ['wallet-not-found', 'shard-unavailable'],
      },
      async ({ path, query, principal, idOf }) => {
        const { id } = await access.wallet(principal, idOf(Wallet, path.id));
        const { log } = databases.transactionManager(id.resolveShardIdentifier());
        const { items, next } = await log.findByModel(
          { name: modelNameOf(Wallet), id: id.value },
          { limit: query.limit, after: query.cursor },
        );
        const resources = items.map((event) =>
          eventResource(event, access.mayKnow(principal, event.principal)),
        );
        return { body: { items: resources, next: next ?? null } };
      },
    ),
  ];
}

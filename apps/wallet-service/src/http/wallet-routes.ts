import { modelNameOf } from '@framework/core/adapter';
import { z } from '@hono/zod-openapi';
import { Big } from 'big.js';

import { WalletCreateAction } from '../wallet/wallet-create-action.js';
import { placementOf } from '../wallet/placement.js';
import { Wallet } from '../wallet/wallet.js';
import { cursorNote, decimalField, existingId, limitField, textField, uuidField } from './request-fields.js';
import {
  eventResource,
  eventSchema,
  pageOf,
  walletReply,
  walletResource,
  walletSchema,
} from './resources.js';
import { serve } from './serve.js';
import { shardsIn } from './shard-capacity.js';
import type { WalletApp, WalletService } from './wallet-app-env.js';

const newWallet = z
  .strictObject({
    country: textField.openapi({ description: 'Determines the shard permanently.', example: 'MX' }),
    ownerId: uuidField,
    currency: textField.openapi({ description: 'An ISO 4217 code.', example: 'MXN' }),
    initialBalance: decimalField.default(new Big(0)).openapi({ default: '0', example: '100.00' }),
  })
  .openapi('NewWallet');

/** Serves opening, reading and listing wallets. */
export function walletRoutes(app: WalletApp, { access, databases, executor, wallets }: WalletService): void {
  serve(
    app,
    {
      method: 'post',
      path: '/wallets',
      tag: 'Wallets',
      summary: 'Open a wallet',
      description: 'A wallet of country MX is stored on shard (1, 0), any other on shard (0, 0).',
      body: newWallet,
      model: Wallet,
      action: WalletCreateAction,
      shardsOf: ({ body }) => [placementOf(body.country)],
      answers: { 201: 'The new wallet; `Location` has its address' },
      answer: walletSchema,
      versioned: true,
      problems: ['invalid-amount', 'unknown-currency', 'shard-unavailable', 'outcome-unknown'],
    },
    async ({ body, principal, execution }) => {
      const wallet = await executor.execute(principal, WalletCreateAction, body, execution);
      const reply = walletReply(wallet);
      return { ...reply, status: 201, location: reply.resource.address };
    },
  );

  serve(
    app,
    {
      method: 'get',
      path: '/wallets/{id}',
      tag: 'Wallets',
      summary: 'Read a wallet',
      pathFields: z.object({ id: uuidField }),
      model: Wallet,
      shardsOf: ({ path }) => shardsIn(path.id),
      answers: { 200: 'The wallet' },
      answer: walletSchema,
      versioned: true,
      problems: ['wallet-not-found', 'precondition-failed', 'shard-unavailable'],
    },
    async ({ path, principal }) =>
      walletReply(await access.wallet(principal, existingId(Wallet, path.id, databases))),
  );

  serve(
    app,
    {
      method: 'get',
      path: '/wallets',
      tag: 'Wallets',
      summary: 'List the wallets of an owner',
      description: 'Over all shards, oldest first.',
      query: z.strictObject({
        ownerId: uuidField,
        limit: limitField,
        cursor: uuidField.optional().openapi({ description: cursorNote }),
      }),
      model: Wallet,
      shardsOf: () => databases.shards,
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
  );
}

/** Serves the history of wallets. */
export function walletEventRoutes(app: WalletApp, { access, databases }: WalletService): void {
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
      model: Wallet,
      shardsOf: ({ path }) => shardsIn(path.id),
      answers: { 200: 'One page' },
      answer: pageOf(eventSchema),
      problems: ['wallet-not-found', 'shard-unavailable'],
    },
    async ({ path, query, principal }) => {
      const { id } = await access.wallet(principal, existingId(Wallet, path.id, databases));
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
  );
}

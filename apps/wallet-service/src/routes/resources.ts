import type { EventClass } from '@framework/core';
import { type LoggedEvent, currentPayload, eventTypeOf } from '@framework/core/adapter';
import * as z from 'zod';

import type { Transfer } from '../transfer/transfer.js';
import {
  type Wallet,
  WalletClosedEvent,
  WalletCreatedEvent,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
  WalletTransferReceivedEvent,
} from '../wallet/wallet.js';

const shardResource = z
  .object({ group: z.int().meta({ example: 1 }), member: z.int().meta({ example: 0 }) })
  .meta({ id: 'Shard' });

/** The schema of a wallet in answers. */
export const walletSchema = z
  .object({
    id: z.uuid(),
    shard: shardResource,
    ownerId: z.uuid(),
    currency: z.string().meta({ example: 'MXN' }),
    balance: z.string().meta({ description: 'An exact decimal.', example: '125.50' }),
    state: z.enum(['OPENED', 'CLOSED']),
    version: z
      .int()
      .meta({ description: 'Increases by 1 with each change; the first version is 1.', example: 2 }),
    createdDate: z.iso.datetime(),
    updatedDate: z.iso.datetime(),
  })
  .meta({ id: 'Wallet' });

/** Represents a wallet for clients. */
export function walletResource(wallet: Wallet): z.input<typeof walletSchema> {
  return {
    id: wallet.id.value,
    shard: wallet.id.resolveShardIdentifier(),
    ownerId: wallet.ownerId,
    currency: wallet.currency,
    balance: wallet.balance.toFixed(),
    state: wallet.state,
    version: wallet.version,
    createdDate: wallet.createdDate.toISOString(),
    updatedDate: wallet.updatedDate.toISOString(),
  };
}

/** The answer that represents a wallet. */
export function walletReply(wallet: Wallet) {
  const resource = { address: `/wallets/${wallet.id.value}`, version: wallet.version };
  return { body: walletResource(wallet), resource };
}

/** The schema of a transfer in answers. */
export const transferSchema = z
  .object({
    id: z.uuid().meta({ description: 'Contains the shard of the source wallet.' }),
    state: z.enum(['INITIATED', 'COMPLETED', 'REFUNDED']),
    sourceId: z.uuid(),
    destId: z.uuid(),
    amount: z.string().meta({ description: 'An exact decimal.', example: '25.50' }),
    currency: z.string().meta({ example: 'EUR' }),
    reason: z.string().optional().meta({ description: 'Why the transfer was refunded, if it was.' }),
    createdDate: z.iso.datetime(),
    updatedDate: z.iso.datetime(),
  })
  .meta({ id: 'Transfer' });

/** Represents a transfer for clients. */
function transferResource(transfer: Transfer): z.input<typeof transferSchema> {
  return {
    id: transfer.id.value,
    state: transfer.state,
    sourceId: transfer.sourceId.value,
    destId: transfer.destId.value,
    amount: transfer.amount.toFixed(),
    currency: transfer.currency,
    ...(transfer.reason !== undefined && { reason: transfer.reason }),
    createdDate: transfer.createdDate.toISOString(),
    updatedDate: transfer.updatedDate.toISOString(),
  };
}

/** The answer that represents a transfer. */
export function transferReply(transfer: Transfer) {
  const resource = { address: `/transfers/${transfer.id.value}`, version: transfer.version };
  return { body: transferResource(transfer), resource };
}

const classes: ReadonlyMap<string, EventClass> = new Map(
  [
    WalletCreatedEvent,
    WalletMoneyDepositedEvent,
    WalletMoneyWithdrawnEvent,
    WalletTransferReceivedEvent,
    WalletClosedEvent,
  ].map((eventClass) => [eventTypeOf(eventClass), eventClass]),
);

/** The schema of a wallet's event in answers. */
export const eventSchema = z
  .object({
    id: z.uuid().meta({ description: 'The same wherever the event is delivered.' }),
    type: z.string().meta({ example: 'WalletMoneyDepositedEvent' }),
    version: z.int().meta({ description: 'The version of the wallet after the event.', example: 2 }),
    actionId: z.uuid().meta({ description: 'Shared by all events of one action.' }),
    actionName: z.string().meta({ example: 'WalletDepositMoneyAction' }),
    principal: z.string().nullable().meta({
      description: 'On whose behalf the action ran; null if the reader may not know.',
      example: 'wallet-service',
    }),
    payload: z.unknown().meta({
      type: 'object',
      description: 'The fields of the event, decimals as strings.',
      example: { amount: '25.50', newBalance: '125.50' },
    }),
    createdDate: z.iso.datetime(),
  })
  .meta({ id: 'WalletEvent' });

/**
 * Represents a wallet's event for clients, with its payload in the current format.
 *
 * @param isPrincipalTold whether the client may know on whose behalf the action ran
 */
export function eventResource(event: LoggedEvent, isPrincipalTold: boolean): z.input<typeof eventSchema> {
  const eventClass = classes.get(event.type);
  return {
    id: event.id,
    type: event.type,
    version: event.modelVersion,
    actionId: event.actionId,
    actionName: event.actionName,
    principal: isPrincipalTold ? event.principal : null,
    payload: eventClass === undefined ? event.payload : currentPayload(eventClass, event),
    createdDate: event.createdDate.toISOString(),
  };
}

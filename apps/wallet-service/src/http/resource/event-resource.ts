import { type EventClass, type LoggedEvent, currentPayload, eventTypeOf } from '@framework/core';
import { z } from '@hono/zod-openapi';
import {
  WalletClosedEvent,
  WalletCreatedEvent,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
  WalletTransferReceivedEvent,
} from '../../wallet/wallet.js';

const classes: ReadonlyMap<string, EventClass> = new Map(
  [
    WalletCreatedEvent,
    WalletMoneyDepositedEvent,
    WalletMoneyWithdrawnEvent,
    WalletTransferReceivedEvent,
    WalletClosedEvent,
  ].map((eventClass) => [eventTypeOf(eventClass), eventClass]),
);

/** The schema of one event of a wallet as it is answered. */
export const eventSchema = z
  .object({
    id: z.uuid().openapi({ description: 'The same wherever the event is delivered.' }),
    type: z.string().openapi({ example: 'WalletMoneyDepositedEvent' }),
    version: z.int().openapi({ description: 'The version of the wallet that the event led to.', example: 2 }),
    actionId: z
      .uuid()
      .openapi({ description: 'Shared by all events of one action, such as both sides of a transfer.' }),
    actionName: z.string().openapi({ example: 'WalletDepositMoneyAction' }),
    principal: z.string().openapi({ description: 'Who asked for it.', example: 'wallet-service' }),
    payload: z.unknown().openapi({
      type: 'object',
      description: 'The fields of the event, decimals as strings.',
      example: { amount: '25.50', newBalance: '125.50' },
    }),
    createdDate: z.iso.datetime(),
  })
  .openapi('WalletEvent');

/** Shows an event of a wallet to clients, its payload as events are written today. */
export function eventResource(event: LoggedEvent): z.input<typeof eventSchema> {
  const eventClass = classes.get(event.type);
  return {
    id: event.id,
    type: event.type,
    version: event.modelVersion,
    actionId: event.actionId,
    actionName: event.actionName,
    principal: event.principal,
    payload: eventClass === undefined ? event.payload : currentPayload(eventClass, event),
    createdDate: event.createdDate.toISOString(),
  };
}

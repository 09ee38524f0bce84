import { type AsyncApiDocument, asyncApiDocument } from '@framework/relay/asyncapi';
import type { RelayDescription } from '@framework/relay/config';

import {
  Transfer,
  TransferCompletedEvent,
  TransferInitiatedEvent,
  TransferRefundedEvent,
} from './transfer/transfer.js';
import {
  TransferDecision,
  TransferReceivedEvent,
  TransferRefusedEvent,
} from './transfer/transfer-decision.js';
import {
  Wallet,
  WalletClosedEvent,
  WalletCreatedEvent,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
  WalletTransferReceivedEvent,
} from './wallet/wallet.js';

/**
 * Describes the events that the service publishes by its relays, as an AsyncAPI document.
 *
 * @param relays where they are published: only for documents that not everybody can read, because it names hosts. Default: no broker
 */
export function publishedEvents(namespace: string, relays: RelayDescription = {}): AsyncApiDocument {
  return asyncApiDocument({
    ...relays,
    title: 'Events of the wallet service',
    version: '0.1.0',
    description:
      'What happened to wallets and transfers. Each event arrives at least once, those of one wallet or transfer for the first time ' +
      'in the order of its versions. Decimals are exact: strings of plain digits.',
    namespace,
    models: [
      {
        model: Wallet,
        events: [
          WalletCreatedEvent,
          WalletMoneyDepositedEvent,
          WalletMoneyWithdrawnEvent,
          WalletTransferReceivedEvent,
          WalletClosedEvent,
        ],
      },
      { model: Transfer, events: [TransferInitiatedEvent, TransferCompletedEvent, TransferRefundedEvent] },
      { model: TransferDecision, events: [TransferReceivedEvent, TransferRefusedEvent] },
    ],
  });
}

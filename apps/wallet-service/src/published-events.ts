import type { PublishedEvents } from '@framework/service';

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

/** The events that the service publishes by its relays. */
export const publishedEvents: PublishedEvents = {
  title: 'Events of the wallet service',
  version: '0.1.0',
  description:
    'What happened to wallets and transfers. Each event arrives at least once, those of one wallet or transfer for the first time ' +
    'in the order of its versions. Decimals are exact: strings of plain digits.',
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
};

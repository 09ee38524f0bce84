import { Big } from 'big.js';
import { test } from 'vitest';

import { mexico, walletSpecification as spec, walletOf } from '../../test/wallet-specification.js';
import { TransferDecision, TransferReceivedEvent } from './transfer-decision.js';
import { Transfer, TransferCompletedEvent } from './transfer.js';

const amount = new Big('2.50');
const destination = walletOf('1', { shard: mexico });
const transfer = Transfer.initiate(walletOf('10'), destination.id, amount, new Date(0));
const arrival = { transferId: transfer.id, destId: destination.id };
const received = new TransferReceivedEvent(
  TransferDecision.idOf(arrival),
  transfer.id,
  destination.id,
  amount,
  'EUR',
);

test('SettleTransfer records the receipt of the money at the source once', async () => {
  await spec
    .given(transfer)
    .whenHandled(received, { times: 2 })
    .thenEvents(new TransferCompletedEvent(transfer.id));
  await spec.given(transfer.complete()).whenHandled(received).thenNothing();
});

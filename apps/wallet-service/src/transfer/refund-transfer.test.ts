import { Big } from 'big.js';
import { describe, test } from 'vitest';

import { mexico, walletSpecification as spec, walletOf } from '../../test/wallet-specification.js';
import { WalletMoneyDepositedEvent } from '../wallet/wallet.js';
import { TransferDecision, TransferRefusedEvent } from './transfer-decision.js';
import { Transfer, TransferRefundedEvent } from './transfer.js';

const amount = new Big('2.50');
const source = walletOf('10');
const destId = walletOf('1', { shard: mexico }).id;
const transfer = Transfer.initiate(source, destId, amount, new Date(0));
const arrival = { transferId: transfer.id, destId, amount, currency: 'EUR' };
const refused = new TransferRefusedEvent(
  TransferDecision.idOf(arrival),
  transfer.id,
  destId,
  amount,
  'EUR',
  'wallet-closed',
);

describe('RefundTransfer', () => {
  test.each([
    ['opened', source],
    ['closed', source.close()],
  ])('returns the money of a refused transfer once to a source that is %s', async (_state, wallet) => {
    await spec
      .given(wallet, transfer)
      .whenHandled(refused, { times: 2 })
      .thenEvents(
        new WalletMoneyDepositedEvent(source.id, amount, new Big('12.50')),
        new TransferRefundedEvent(transfer.id, 'wallet-closed'),
      );
  });

  test('does nothing for a transfer that was already refunded', async () => {
    await spec.given(source, transfer.refund('wallet-closed')).whenHandled(refused).thenNothing();
  });
});

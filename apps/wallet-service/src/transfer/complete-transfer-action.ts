import {
  Action,
  type Clock,
  FrameworkAction,
  type Id,
  type Principal,
  shardedIdCodec,
} from '@framework/core';
import type { Big } from 'big.js';
import * as z from 'zod';

import { decimal } from '../wallet/money.js';
import { CurrencyMismatchError, WalletError } from '../wallet/wallet-error.js';
import type { WalletRepository } from '../wallet/wallet-repository.js';
import { Wallet } from '../wallet/wallet.js';
import { type TransferDecisionRepository, transferDecisionCodec } from './transfer-decision-repository.js';
import { type Arrival, TransferDecision } from './transfer-decision.js';
import { Transfer } from './transfer.js';

interface Params {
  readonly transferId: Id<Transfer>;
  readonly destId: Id<Wallet>;
  readonly amount: Big;
  readonly currency: string;
}

const params = z.object({
  transferId: shardedIdCodec(Transfer),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
  currency: z.string(),
});

/**
 * Step 2 of a transfer, on the destination's shard alone: decides, once for good, whether the money is received.
 *
 * The decision and the credit are one commit. Executing it again, for whatever reason, returns what was decided. It
 * throws only where nothing is decided, such as when the shard cannot be reached or is not configured here.
 */
@FrameworkAction({ params, result: transferDecisionCodec })
export class CompleteTransferAction extends Action<Params, TransferDecision> {
  constructor(
    clock: Clock,
    private readonly wallets: Pick<WalletRepository, 'findById'>,
    private readonly decisions: Pick<TransferDecisionRepository, 'findById'>,
  ) {
    super(clock);
  }

  protected async perform(_principal: Principal, arrival: Params): Promise<TransferDecision> {
    // The wallet first: its turn is the one worth waiting for, and what was decided on it before is seen below.
    const wallet = await this.wallets.findById(arrival.destId);
    const decided = await this.decisions.findById(TransferDecision.idOf(arrival));
    if (decided !== undefined) return decided.of(arrival);
    const credited = wallet === undefined ? 'wallet-not-found' : creditedOrReason(wallet, arrival);
    if (typeof credited === 'string')
      return this.plan().add(TransferDecision.refused(arrival, credited, this.clock.now()));
    this.plan().update(credited);
    return this.plan().add(TransferDecision.received(arrival, this.clock.now()));
  }
}

/** The wallet with the money in it, or why its rules refuse it. */
function creditedOrReason(wallet: Wallet, { transferId, amount, currency }: Arrival): Wallet | string {
  try {
    if (wallet.currency !== currency) throw new CurrencyMismatchError(currency, wallet.currency);
    return wallet.receive(transferId.value, amount);
  } catch (error) {
    if (error instanceof WalletError) return error.code;
    throw error;
  }
}

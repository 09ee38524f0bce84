import {
  Action,
  type ActionPolicy,
  type Clock,
  FrameworkAction,
  type Principal,
  type Repository,
  ShardedId,
  shardedIdCodec,
} from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import * as z from 'zod';

import { decimal } from '../wallet/money.js';
import { CurrencyMismatchError, WalletError } from '../wallet/wallet-error.js';
import { Wallet } from '../wallet/wallet.js';
import {
  type Arrival,
  TransferDecision,
  TransferReceivedEvent,
  TransferRefusedEvent,
} from './transfer-decision.js';
import { Transfer, TransferInitiatedEvent } from './transfer.js';

const completeParams = z.object({
  transferId: shardedIdCodec(Transfer),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
  currency: z.string(),
});
type CompleteParams = z.infer<typeof completeParams>;

/**
 * Step 2 of a transfer, only on the destination's shard: decides permanently whether the money is received.
 *
 * The decision and the credit are one commit. Executing the action again, for whatever reason, returns the first decision. The
 * action throws only if nothing was decided, for example because the shard cannot be reached or is not configured here.
 */
@FrameworkAction()
export class CompleteTransferAction extends Action<CompleteParams, TransferDecision> {
  static readonly params = completeParams;
  static readonly result = TransferDecision;
  readonly #wallets: Repository<Wallet>;
  readonly #decisions: Repository<TransferDecision>;

  constructor(
    clock: Clock,
    wallets: Repository<Wallet>,
    decisions: Repository<TransferDecision>,
    policy?: ActionPolicy<CompleteParams>,
  ) {
    super(clock, policy);
    this.#wallets = wallets;
    this.#decisions = decisions;
  }

  protected async perform(_principal: Principal, arrival: CompleteParams): Promise<TransferDecision> {
    // The wallet is read first: its lock prevents stale attempts, and a decision made while this waits for the lock is read below.
    const wallet = await this.#wallets.findById(arrival.destId);
    const decided = await this.#decisions.findById(TransferDecision.idOf(arrival));
    if (decided !== undefined) return decided.of(arrival);
    const credited = wallet === undefined ? 'wallet-not-found' : creditedOrReason(wallet, arrival);
    if (typeof credited === 'string')
      return this.plan().add(TransferDecision.refused(arrival, credited, this.clock.now()));
    this.plan().update(credited);
    return this.plan().add(TransferDecision.received(arrival, this.clock.now()));
  }
}

/** The credited wallet, or the reason why its rules refuse the money. */
function creditedOrReason(wallet: Wallet, { transferId, amount, currency }: Arrival): Wallet | string {
  try {
    if (wallet.currency !== currency) throw new CurrencyMismatchError(currency, wallet.currency);
    return wallet.receive(transferId.value, amount);
  } catch (error) {
    if (error instanceof WalletError) return error.code;
    throw error;
  }
}

const refundParams = z.object({
  transferId: shardedIdCodec(Transfer),
  /** Why the destination refused. */
  reason: z.string(),
});
type RefundParams = z.infer<typeof refundParams>;

/**
 * The last step of a transfer whose destination has refused the money, on the source's shard: refunds the source, in one commit.
 *
 * Execute it only for a committed refusal, as `RefundTransfer` does; nothing else proves that the money has not arrived.
 */
@FrameworkAction()
export class RefundTransferAction extends Action<RefundParams, undefined> {
  static readonly params = refundParams;
  readonly #wallets: Repository<Wallet>;
  readonly #transfers: Repository<Transfer>;

  constructor(
    clock: Clock,
    wallets: Repository<Wallet>,
    transfers: Repository<Transfer>,
    policy?: ActionPolicy<RefundParams>,
  ) {
    super(clock, policy);
    this.#wallets = wallets;
    this.#transfers = transfers;
  }

  protected async perform(_principal: Principal, { transferId, reason }: RefundParams): Promise<undefined> {
    const transfer = await this.#transfers.getById(transferId);
    if (transfer.state !== 'INITIATED') return;
    const source = await this.#wallets.getById(transfer.sourceId);
    this.plan().update(source.takeBack(transfer.amount));
    this.plan().update(transfer.refund(reason));
  }
}

const settleParams = z.object({ transferId: shardedIdCodec(Transfer) });
type SettleParams = z.infer<typeof settleParams>;

/** The last step of a transfer whose destination has received the money, on the source's shard: records the completion there. */
@FrameworkAction()
export class SettleTransferAction extends Action<SettleParams, undefined> {
  static readonly params = settleParams;
  readonly #transfers: Repository<Transfer>;

  constructor(clock: Clock, transfers: Repository<Transfer>, policy?: ActionPolicy<SettleParams>) {
    super(clock, policy);
    this.#transfers = transfers;
  }

  protected async perform(_principal: Principal, { transferId }: SettleParams): Promise<undefined> {
    const transfer = await this.#transfers.getById(transferId);
    if (transfer.state === 'INITIATED') this.plan().update(transfer.complete());
  }
}

/**
 * Step 2 of a transfer: lets the destination decide about the money.
 *
 * An error says nothing about the decision: the event is retried until there is one, even while the shard is down, or not
 * configured in this process. The next step handles the event of the decision.
 */
@FrameworkEventHandler({ name: 'receive-transfer', startFrom: 'beginning' })
export class ReceiveTransfer implements EventHandler<TransferInitiatedEvent> {
  readonly event = TransferInitiatedEvent;

  async handle({ event }: EventEnvelope<TransferInitiatedEvent>, context: HandlerContext): Promise<void> {
    const transferId = ShardedId.of(Transfer, event.modelId);
    const { destId, amount, currency } = event;
    await context.execute(CompleteTransferAction, { transferId, destId, amount, currency });
  }
}

/** Step 3 of a refused transfer: refunds the source. Only the committed refusal leads here. */
@FrameworkEventHandler({ name: 'refund-transfer', startFrom: 'beginning' })
export class RefundTransfer implements EventHandler<TransferRefusedEvent> {
  readonly event = TransferRefusedEvent;

  async handle({ event }: EventEnvelope<TransferRefusedEvent>, context: HandlerContext): Promise<void> {
    const { transferId, reason } = event;
    await context.execute(RefundTransferAction, { transferId, reason });
  }
}

/**
 * Step 3 of a received transfer: records the completion on the source's shard.
 *
 * It handles the decision's event, not the wallet's. The events of a model wait for each other, so one source that cannot be reached
 * would hold up every later settlement of the wallet.
 */
@FrameworkEventHandler({ name: 'settle-transfer', aliases: ['complete-transfer'], startFrom: 'beginning' })
export class SettleTransfer implements EventHandler<TransferReceivedEvent> {
  readonly event = TransferReceivedEvent;

  async handle({ event }: EventEnvelope<TransferReceivedEvent>, context: HandlerContext): Promise<void> {
    await context.execute(SettleTransferAction, { transferId: event.transferId });
  }
}

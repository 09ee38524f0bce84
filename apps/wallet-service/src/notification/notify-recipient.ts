import {
  Action,
  Entity,
  FrameworkAction,
  type NewEntity,
  type Principal,
  type ShardIdentifier,
  ShardedId,
  notNull,
  shardedIdCodec,
} from '@framework/core';
import {
  type EventEnvelope,
  type EventHandler,
  FrameworkEventHandler,
  type HandlerContext,
} from '@framework/events';
import * as z from 'zod';

import { Wallet, WalletMoneyDepositedEvent } from '../wallet/wallet.js';

/** A message to a recipient: an entity, so it has no events. */
export class Notification extends Entity<Notification, ShardedId<Notification>, 'PENDING'> {
  readonly recipient: string;
  readonly walletId: ShardedId<Wallet>;
  readonly text: string;

  /** @throws InvalidModelError `invalid-model` when a field is missing */
  constructor(fields: NewEntity<Notification>) {
    super(fields);
    this.recipient = notNull(fields.recipient, 'recipient cannot be null');
    this.walletId = notNull(fields.walletId, 'walletId cannot be null');
    this.text = notNull(fields.text, 'text cannot be null');
  }

  /** A notification on the shard of its wallet. */
  static of(
    shard: ShardIdentifier,
    recipient: string,
    walletId: ShardedId<Wallet>,
    text: string,
  ): Notification {
    return new Notification({
      id: ShardedId.generate(Notification, shard),
      state: 'PENDING',
      recipient,
      walletId,
      text,
    });
  }
}

const params = z.object({ walletId: shardedIdCodec(Wallet), recipient: z.string(), text: z.string() });
type Params = z.infer<typeof params>;

/** Records, on the wallet's shard, that a recipient must be notified. */
@FrameworkAction()
export class NotifyRecipientAction extends Action<Params, undefined> {
  static readonly params = params;

  protected async perform(_principal: Principal, { walletId, recipient, text }: Params): Promise<undefined> {
    this.plan().add(Notification.of(walletId.resolveShardIdentifier(), recipient, walletId, text));
  }
}

const asked = z.object({ recipient: z.string().optional() });

/** Notifies the recipient that a deposit names. */
@FrameworkEventHandler({ name: 'notify-recipient-on-deposit', startFrom: 'beginning' })
export class NotifyRecipientOnDeposit implements EventHandler<WalletMoneyDepositedEvent> {
  readonly event = WalletMoneyDepositedEvent;

  async handle(
    { event, actionParams }: EventEnvelope<WalletMoneyDepositedEvent>,
    context: HandlerContext,
  ): Promise<void> {
    const { recipient } = asked.parse(actionParams);
    if (recipient === undefined) return;
    const walletId = ShardedId.of(Wallet, event.modelId);
    const text = `${event.amount.toFixed()} was deposited; the balance is ${event.newBalance.toFixed()}`;
    await context.execute(NotifyRecipientAction, { walletId, recipient, text });
  }
}

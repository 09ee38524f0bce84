import { Entity, type Id, type NewEntity, type ShardIdentifier, ShardedId, notNull } from '@framework/core';

import type { Wallet } from '../wallet/wallet.js';

/** What somebody is to be told: an entity, without events of its own. */
export class Notification extends Entity<Notification, ShardedId<Notification>, 'PENDING'> {
  readonly recipient: string;
  readonly walletId: Id<Wallet>;
  readonly text: string;

  /** @throws InvalidModelError `invalid-model` when a field is missing */
  constructor(fields: NewEntity<Notification>) {
    super(fields);
    this.recipient = notNull(fields.recipient, 'recipient cannot be null');
    this.walletId = notNull(fields.walletId, 'walletId cannot be null');
    this.text = notNull(fields.text, 'text cannot be null');
  }

  /** A notification on the shard of what it is about. */
  static of(shard: ShardIdentifier, recipient: string, walletId: Id<Wallet>, text: string): Notification {
    return new Notification({
      id: ShardedId.generate(Notification, shard),
      state: 'PENDING',
      recipient,
      walletId,
      text,
    });
  }
}

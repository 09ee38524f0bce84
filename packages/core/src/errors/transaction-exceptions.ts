import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import { FrameworkException } from './framework-exception.js';

/** A transaction was asked for inside a transaction on the same shard. */
export class NestedTransactionException extends FrameworkException {
  /** The shard that already has a transaction open here. */
  readonly shard: ShardIdentifier;

  constructor(shard: ShardIdentifier) {
    super(
      'nested-transaction',
      `A transaction on ${shard} is already open here: do the work in the outer inTransaction, or execute the action after it`,
    );
    this.shard = shard;
  }
}

/** Work went on in a transaction that had already ended, mostly in a promise that nobody awaited. */
export class TransactionOverException extends FrameworkException {
  /** The shard of the ended transaction. */
  readonly shard: ShardIdentifier;

  constructor(shard: ShardIdentifier) {
    super(
      'transaction-over',
      `The transaction on ${shard} has ended: await every call inside inTransaction before its function returns`,
    );
    this.shard = shard;
  }
}

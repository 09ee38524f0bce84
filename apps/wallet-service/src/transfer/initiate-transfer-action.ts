import {
  Action,
  type ActionPolicy,
  type Clock,
  type DatabaseRegistry,
  FrameworkAction,
  type Principal,
  type Repository,
  UnknownShardError,
  shardedIdCodec,
} from '@framework/core';
import * as z from 'zod';

import { decimal } from '../wallet/money.js';
import { InvalidAmountError, SameWalletError } from '../wallet/wallet-error.js';
import { Wallet } from '../wallet/wallet.js';
import { Transfer } from './transfer.js';

const params = z.object({
  sourceId: shardedIdCodec(Wallet),
  destId: shardedIdCodec(Wallet),
  amount: decimal,
});
type Params = z.infer<typeof params>;

/**
 * Step 1 of a transfer, on the source's shard: takes the money out and creates the transfer, in one commit.
 *
 * A transfer to a shard that this process does not know is refused, because nobody could receive the money.
 */
@FrameworkAction()
export class InitiateTransferAction extends Action<Params, Transfer> {
  static readonly params = params;
  static readonly result = Transfer;
  readonly #wallets: Repository<Wallet>;
  readonly #databases: Pick<DatabaseRegistry, 'shards'>;

  constructor(
    clock: Clock,
    wallets: Repository<Wallet>,
    databases: Pick<DatabaseRegistry, 'shards'>,
    policy?: ActionPolicy<Params>,
  ) {
    super(clock, policy);
    this.#wallets = wallets;
    this.#databases = databases;
  }

  protected async perform(_principal: Principal, { sourceId, destId, amount }: Params): Promise<Transfer> {
    if (sourceId.equals(destId)) throw new SameWalletError();
    if (amount.lte(0)) throw new InvalidAmountError('Transfer amount must be positive');
    const shard = destId.resolveShardIdentifier();
    if (!this.#databases.shards.includes(shard)) throw new UnknownShardError(shard);
    const source = await this.#wallets.getById(sourceId);
    this.plan().update(source.withdraw(amount));
    return this.plan().add(Transfer.initiate(source, destId, amount, this.clock.now()));
  }
}

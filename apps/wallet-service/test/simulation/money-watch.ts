import type { WatchedCommit } from '@framework/testing/simulation';
import { Big } from 'big.js';

import { TransferDecision } from '../../src/transfer/transfer-decision.js';
import { Transfer } from '../../src/transfer/transfer.js';
import { Wallet } from '../../src/wallet/wallet.js';

/** Whether an action brings money in (1) or takes it out (-1), by the action's name. */
const broughtBy: Readonly<Record<string, 1 | -1>> = {
  WalletDepositMoneyAction: 1,
  WalletWithdrawMoneyAction: -1,
};

/**
 * Detects money that appears or disappears: after each commit there is as much of each currency, in wallets and in transit, as
 * before, except for what a client brings or takes with it; and no balance is negative.
 */
export class MoneyWatch {
  readonly #wallets: Map<string, Wallet>;
  readonly #transfers = new Map<string, Transfer>();
  /** The ids of transfers whose money has arrived at its destination. */
  readonly #received = new Set<string>();

  /** @param wallets that existed before the first commit */
  constructor(wallets: readonly Wallet[]) {
    this.#wallets = new Map(wallets.map((wallet) => [wallet.id.value, wallet]));
  }

  /** Takes a commit into account; throws if the amount of money is wrong after it. */
  take(commit: WatchedCommit): void {
    const changes = new Changes();
    for (const wallet of commit.changed(Wallet)) {
      const { id, currency, balance } = wallet;
      if (balance.lt(0)) throw new Error(`wallet ${id.value} holds ${balance.toFixed()} ${currency}`);
      changes.add(currency, balance.minus(this.#wallets.get(id.value)?.balance ?? 0));
      this.#wallets.set(id.value, wallet);
    }
    for (const transfer of commit.changed(Transfer)) {
      const { id, currency } = transfer;
      changes.add(currency, inTransit(transfer, this.#received).minus(this.#inTransit(id.value)));
      this.#transfers.set(id.value, transfer);
    }
    for (const { state, transferId, currency } of commit.changed(TransferDecision)) {
      if (state !== 'RECEIVED') continue;
      changes.add(currency, this.#inTransit(transferId.value).times(-1));
      this.#received.add(transferId.value);
    }
    const sign = broughtBy[commit.action.name];
    for (const { modelId, payload } of sign === undefined ? [] : commit.events) {
      const { amount } = payload as { readonly amount: string };
      const currency = this.#wallets.get(modelId)?.currency ?? '';
      changes.add(currency, new Big(amount).times(-(sign ?? 0)));
    }
    changes.assertNone();
  }

  #inTransit(transferId: string): Big {
    const transfer = this.#transfers.get(transferId);
    return transfer === undefined ? new Big(0) : inTransit(transfer, this.#received);
  }
}

function inTransit({ id, state, amount }: Transfer, received: ReadonlySet<string>): Big {
  return state === 'INITIATED' && !received.has(id.value) ? amount : new Big(0);
}

/** The change in the money of each currency. */
class Changes {
  readonly #amounts = new Map<string, Big>();

  add(currency: string, amount: Big): void {
    this.#amounts.set(currency, amount.plus(this.#amounts.get(currency) ?? 0));
  }

  assertNone(): void {
    for (const [currency, amount] of this.#amounts)
      if (!amount.eq(0))
        throw new Error(
          `${amount.abs().toFixed()} ${currency} ${amount.gt(0) ? 'came from nowhere' : 'are gone'}`,
        );
  }
}

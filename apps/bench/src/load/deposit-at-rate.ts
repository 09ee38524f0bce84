import { setTimeout as pause } from 'node:timers/promises';
import { Big } from 'big.js';
import { type Wallet, WalletDepositMoneyAction, type WalletService } from 'wallet-service';
import { principal } from './bench-wallets.js';

const tickMs = 2;

/** A deposit, identified by its wallet and version, and the time at which its commit was known, by {@link epochMs}. */
export interface CommittedDeposit {
  readonly key: string;
  readonly committedMs: number;
}

/** Identifies one change of one wallet. */
export function depositKey(walletId: string, version: number): string {
  return `${walletId}/${version}`;
}

/** Fractional milliseconds that are comparable between all processes of this machine. */
export function epochMs(): number {
  return performance.timeOrigin + performance.now();
}

/**
 * Deposits to the wallets in turn, at a fixed rate, however long the answers take.
 *
 * @param until ends the deposits when it resolves
 * @returns every deposit
 * @throws the error of a failed deposit
 */
export async function depositAtRate(
  { executor }: WalletService,
  wallets: readonly Wallet[],
  perSecond: number,
  until: Promise<unknown>,
): Promise<readonly CommittedDeposit[]> {
  const ended = new AbortController();
  void until.finally(() => ended.abort());
  const deposits: Promise<CommittedDeposit>[] = [];
  const startedMs = performance.now();
  while (!ended.signal.aborted) {
    const dueCount = ((performance.now() - startedMs) / 1_000) * perSecond;
    while (deposits.length < dueCount) deposits.push(deposit(deposits.length));
    await pause(tickMs);
  }
  return Promise.all(deposits);

  async function deposit(index: number): Promise<CommittedDeposit> {
    const wallet = wallets[index % wallets.length];
    if (wallet === undefined) throw new Error('No wallets were opened');
    const { id, version } = await executor.execute(principal, WalletDepositMoneyAction, {
      walletId: wallet.id,
      amount: Big('0.01'),
    });
    return { key: depositKey(id.value, version), committedMs: epochMs() };
  }
}

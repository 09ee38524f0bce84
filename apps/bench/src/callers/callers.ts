import { httpContender } from '../deposits/contenders/http-contender.js';
import type { DepositContender } from '../deposits/deposit-contender.js';
import { type DepositEnvironment, type DepositTarget, anyOf } from '../deposits/deposit-environment.js';
import type { ServiceProcess } from '../deposits/service-process.js';
import { verifyDeposits } from '../deposits/verify-deposits.js';
import { openWallets } from '../load/bench-wallets.js';
import { runLoad } from '../load/run-load.js';
import type { BenchIssuer } from './bench-issuer.js';

/** How many clients deposit, and to how many wallets. */
export interface CallersLoad {
  readonly clientCount: number;
  readonly walletCount: number;
}

/** A wallet to deposit to, with the token of its owner. */
export interface OwnedTarget extends DepositTarget {
  readonly token: string;
}

/** Clients that deposit for many owners of wallets, one of each, as fast as they can. Their tokens stay the same. */
export class Callers {
  readonly #environment: DepositEnvironment;
  readonly #issuer: BenchIssuer;
  readonly #load: CallersLoad;
  readonly #calling: DepositContender;
  readonly #tokens = new Map<string, string>();
  #depositCount = 0;

  constructor(
    environment: DepositEnvironment,
    issuer: BenchIssuer,
    service: Pick<ServiceProcess, 'url'>,
    load: CallersLoad,
  ) {
    this.#environment = environment;
    this.#issuer = issuer;
    this.#load = load;
    this.#calling = httpContender('http', environment, service, load.clientCount);
  }

  /** How many deposits were acknowledged so far. */
  get depositCount(): number {
    return this.#depositCount;
  }

  /** Opens a wallet for somebody who has none of the others. */
  async openOther(): Promise<OwnedTarget> {
    const ownerId = crypto.randomUUID();
    const [wallet] = await openWallets(this.#environment.service, 1, [ownerId]);
    if (wallet === undefined) throw new Error('No wallet was opened');
    return { id: wallet.id, slot: Number.NaN, token: await this.#issuer.token(ownerId) };
  }

  /** Deposits to new wallets, at most so many in a second, and verifies the deposits. */
  async perSecond(durationMs: number, perSecondMax = Infinity): Promise<number> {
    const { clientCount, walletCount } = this.#load;
    const targets = await this.#openWallets(walletCount);
    const { count, perSecond } = await runLoad(() => this.#calling.deposit(anyOf(targets)), {
      clientCount,
      durationMs,
      perSecondMax,
    });
    this.#depositCount += count;
    await verifyDeposits(this.#environment, targets, count);
    return perSecond;
  }

  async #openWallets(count: number): Promise<readonly OwnedTarget[]> {
    while (this.#tokens.size < count) {
      const ownerId = crypto.randomUUID();
      this.#tokens.set(ownerId, await this.#issuer.token(ownerId));
    }
    const wallets = await openWallets(this.#environment.service, count, [...this.#tokens.keys()]);
    return wallets.map(({ id, ownerId }) => ({
      id,
      slot: Number.NaN,
      token: this.#tokens.get(ownerId) ?? '',
    }));
  }

  /** Closes the connections. */
  async close(): Promise<void> {
    await this.#calling.close();
  }
}

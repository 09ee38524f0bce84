import { Big } from 'big.js';
import type { DepositTarget, DepositEnvironment } from './deposit-environment.js';

/** What every deposit puts into a wallet. */
export const amount = Big('25.50');

/** One of several ways to deposit; all of them leave the same rows behind. */
export interface DepositContender<Name extends string = string> {
  readonly name: Name;
  /** Where its wallets are. */
  readonly environment: DepositEnvironment;
  /** Deposits {@link amount}, and resolves when that is committed. */
  readonly deposit: (target: DepositTarget) => Promise<void>;
  /** Closes what the contender has opened for itself. */
  readonly close: () => Promise<void>;
}

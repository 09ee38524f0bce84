import { Big } from 'big.js';
import type { DepositTarget, DepositEnvironment } from './deposit-environment.js';

/** The amount of every deposit. */
export const amount = Big('25.50');

/** One of several ways to deposit; all of them leave the same rows behind. */
export interface DepositContender<Name extends string = string> {
  readonly name: Name;
  /** The databases of its wallets. */
  readonly environment: DepositEnvironment;
  /** Deposits {@link amount}, and resolves when that is committed. */
  readonly deposit: (target: DepositTarget) => Promise<void>;
  /** Closes what the contender itself has opened. */
  readonly close: () => Promise<void>;
}

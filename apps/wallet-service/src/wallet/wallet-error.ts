/** The reasons why the wallet's rules refuse a request. */
export type WalletErrorCode =
  | 'invalid-amount'
  | 'unknown-currency'
  | 'currency-mismatch'
  | 'same-wallet'
  | 'insufficient-funds'
  | 'precondition-failed'
  | 'wallet-closed';

/** A request that the wallet's rules refuse; nothing was changed. */
export abstract class WalletError extends Error {
  readonly code: WalletErrorCode;

  constructor(code: WalletErrorCode, message: string) {
    super(message);
    this.name = new.target.name;
    this.code = code;
  }
}

/** An amount is not positive, has too many decimal places for its currency, or too many digits. */
export class InvalidAmountError extends WalletError {
  constructor(message: string) {
    super('invalid-amount', message);
  }
}

/** The currency is not in ISO 4217. */
export class UnknownCurrencyError extends WalletError {
  constructor(currency: string) {
    super('unknown-currency', `ISO 4217 has no currency ${currency}`);
  }
}

/** Money in one currency cannot go to a wallet in another. */
export class CurrencyMismatchError extends WalletError {
  constructor(source: string, destination: string) {
    super('currency-mismatch', `The source holds ${source} and the destination ${destination}`);
  }
}

/** The source and the destination of a transfer are the same wallet. */
export class SameWalletError extends WalletError {
  constructor() {
    super('same-wallet', 'Source and destination are the same wallet');
  }
}

/** The wallet holds less than the amount to be taken out. */
export class InsufficientFundsError extends WalletError {
  constructor(balance: string, amount: string, currency: string) {
    super('insufficient-funds', `The balance of ${balance} ${currency} does not cover ${amount} ${currency}`);
  }
}

/** The version is not one of those that the caller expects. */
export class UnexpectedVersionError extends WalletError {
  constructor(version: number) {
    super('precondition-failed', `The current version is ${version}, which is not among the expected ones`);
  }
}

/** The wallet is closed and never changes again. */
export class WalletClosedError extends WalletError {
  constructor(id: string) {
    super('wallet-closed', `Wallet ${id} is closed`);
  }
}

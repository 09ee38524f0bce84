/** The refusals that the wallet's rules know. */
export type WalletErrorCode =
  | 'invalid-amount'
  | 'unknown-currency'
  | 'currency-mismatch'
  | 'same-wallet'
  | 'insufficient-funds'
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

/** An amount is not positive, has too many decimals for its currency, or too many digits. */
export class InvalidAmountError extends WalletError {
  constructor(message: string) {
    super('invalid-amount', message);
  }
}

/** ISO 4217 does not have the currency. */
export class UnknownCurrencyError extends WalletError {
  constructor(currency: string) {
    super('unknown-currency', `ISO 4217 has no currency ${currency}`);
  }
}

/** Money of one currency cannot go to a wallet of another. */
export class CurrencyMismatchError extends WalletError {
  constructor(source: string, destination: string) {
    super('currency-mismatch', `The source holds ${source} and the destination ${destination}`);
  }
}

/** Source and destination of a transfer are one wallet. */
export class SameWalletError extends WalletError {
  constructor() {
    super('same-wallet', 'Source and destination are the same wallet');
  }
}

/** The wallet holds less than what is to be taken out. */
export class InsufficientFundsError extends WalletError {
  constructor(balance: string, amount: string, currency: string) {
    super('insufficient-funds', `The balance of ${balance} ${currency} does not cover ${amount} ${currency}`);
  }
}

/** The wallet is closed and does not change any more. */
export class WalletClosedError extends WalletError {
  constructor(id: string) {
    super('wallet-closed', `Wallet ${id} is closed`);
  }
}

// For programs that embed the service or measure it.
export { type WalletService } from './composition.js';
export { walletService } from './wallet-service.js';
export { WalletCreateAction } from './wallet/wallet-create-action.js';
export { WalletDepositMoneyAction } from './wallet/wallet-deposit-money-action.js';
export { Wallet, WalletMoneyDepositedEvent } from './wallet/wallet.js';

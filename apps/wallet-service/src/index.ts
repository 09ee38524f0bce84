// For programs that embed the service or measure it.
export { composeWalletService } from './composition.js';
export { WalletCreateAction } from './wallet/wallet-create-action.js';
export { WalletDepositMoneyAction } from './wallet/wallet-deposit-money-action.js';
export { Wallet, WalletMoneyDepositedEvent } from './wallet/wallet.js';
export type { WalletService } from './wallet-service.js';

import type { ActionExecutor, DatabaseRegistry, Principal } from '@framework/core';
import type { Delivery } from '@framework/events';
import type { TransferRepository } from '../transfer/transfer-repository.js';
import type { WalletRepository } from '../wallet/wallet-repository.js';

/** What the HTTP entry serves: the composition gives it, and nothing here knows how it was put together. */
export interface WalletService {
  readonly databases: DatabaseRegistry;
  readonly wallets: WalletRepository;
  readonly transfers: TransferRepository;
  readonly executor: ActionExecutor;
  /** Brings committed events to their handlers, or tells the processes that do. */
  readonly delivery: Pick<Delivery, 'start' | 'started' | 'startedOn' | 'stop' | 'restartNeed'>;
  /** Tells who sent a request; a real service reads a token of it. */
  readonly principalOf: (request: Request) => Principal | Promise<Principal>;
}

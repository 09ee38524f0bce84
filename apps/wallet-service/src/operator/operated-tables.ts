import type { DatabaseRegistry } from '@framework/core';
import type { PgRepository } from '@framework/drizzle-adapter';

import type { TransferDecision } from '../transfer/transfer-decision.js';
import type { Transfer } from '../transfer/transfer.js';
import type { transferDecisions, transfers } from '../transfer/transfer-tables.js';
import type { PgWalletRepository } from '../wallet/wallet-repository.js';

/** The tables of the service, read on behalf of its operators. */
export interface OperatedTables {
  readonly databases: DatabaseRegistry;
  readonly wallets: PgWalletRepository;
  readonly transfers: PgRepository<Transfer, typeof transfers>;
  readonly decisions: PgRepository<TransferDecision, typeof transferDecisions>;
}

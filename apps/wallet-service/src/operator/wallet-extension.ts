import type { DatabaseRegistry } from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';
import type { OperatorExtension } from '@framework/operator';

import { TransferDecision } from '../transfer/transfer-decision.js';
import { Transfer } from '../transfer/transfer.js';
import { transferDecisions, transfers } from '../transfer/transfer-tables.js';
import { PgWalletRepository } from '../wallet/wallet-repository.js';
import { decisionsJustified, transfersDecided, walletBalances } from './invariants.js';
import { explainTransfer } from './explain-transfer.js';
import type { OperatedTables } from './operated-tables.js';
import { allTransfers, reconciliation, transfersInTransit } from './views.js';

/** What the wallet service adds to its operator: its transfers, the money of each shard, and what must hold. */
export function walletExtension(databases: DatabaseRegistry): OperatorExtension {
  const tables: OperatedTables = {
    databases,
    wallets: new PgWalletRepository(databases),
    transfers: new PgRepository({ model: Transfer, table: transfers, databases }),
    decisions: new PgRepository({ model: TransferDecision, table: transferDecisions, databases }),
  };
  return {
    views: [transfersInTransit(tables), allTransfers(tables), reconciliation(tables)],
    invariants: [walletBalances(tables), transfersDecided(tables), decisionsJustified(tables)],
    why: (id) => explainTransfer(tables, id),
  };
}

import type { OperatorExtension } from '@framework/operator';

import { decisionsJustified, transfersDecided, walletBalances } from './invariants.js';
import { explainTransfer } from './explain-transfer.js';
import type { OperatedTables } from './operated-tables.js';
import { allTransfers, reconciliation, transfersInTransit } from './views.js';

/** What the wallet service adds to its operator: its transfers, the money of each shard, and what must hold. */
export function walletExtension(tables: OperatedTables): OperatorExtension {
  return {
    views: [transfersInTransit(tables), allTransfers(tables), reconciliation(tables)],
    invariants: [walletBalances(tables), transfersDecided(tables), decisionsJustified(tables)],
    why: (id) => explainTransfer(tables, id),
  };
}

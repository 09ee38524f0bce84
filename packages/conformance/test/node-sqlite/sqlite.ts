import type { DatabaseDriver } from '@framework/core/adapter';
import { resolve } from 'node:path';

import { SqliteFile } from './sqlite-file.js';
import { SqliteTransactionManager } from './sqlite-transaction-manager.js';

/** Opens SQLite databases, which store events but do not deliver them; the address is the path of the file. */
export const sqlite: DatabaseDriver = {
  parseAddress: (address) => ({ key: resolve(address), place: address }),
  open: ({ address }) => {
    const file = new SqliteFile(address);
    return {
      transactionManager: (shard) => new SqliteTransactionManager(shard, file),
      // A file that can be opened is always available.
      ready: async () => undefined,
      ping: async () => undefined,
      close: () => file.close(),
    };
  },
};

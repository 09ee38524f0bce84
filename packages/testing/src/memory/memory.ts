import { type Clock, type DatabaseDriver, systemClock } from '@framework/core';
import { MemoryDatabase } from './memory-database.js';
import { MemoryFaults } from './memory-faults.js';
import { type MemoryServer, defaultSlotCount } from './memory-server.js';
import { MemoryTables } from './memory-tables.js';

/** What may differ from the defaults. */
export interface MemoryOptions {
  /** The databases' time; a server has its own. Default: the computer's clock. */
  readonly clock?: Clock;
  /** Into how many slots each log is cut by the models' ids; a server has its own. Default 16. */
  readonly slotCount?: number;
  /** Whose databases are opened. Default: databases of their own, which begin empty and are lost with the registry. */
  readonly server?: MemoryServer;
  /** How the way to the databases misbehaves. Default: not at all. */
  readonly faults?: MemoryFaults;
}

/**
 * Opens databases in memory, with the guarantees of a real one: for tests without any server.
 *
 * ```ts
 * const databases = openDatabases(memorySharding(ShardIdentifier.of(0, 0)), memory({ clock }));
 * const wallets = new MemoryRepository({ model: Wallet, databases });
 * ```
 */
export function memory({
  clock = systemClock,
  slotCount = defaultSlotCount,
  server,
  faults = new MemoryFaults(),
}: MemoryOptions = {}): DatabaseDriver {
  let position = 0;
  return {
    open: (config, shards) => {
      const tables =
        server === undefined ? new MemoryTables(clock, slotCount, () => position++) : server.tablesAt(config);
      return new MemoryDatabase(tables, shards, faults);
    },
  };
}

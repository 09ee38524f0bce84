import { type Clock, type DatabaseDriver, systemClock } from '@framework/core';
import { MemoryDatabase } from './memory-database.js';
import { MemoryFaults } from './memory-faults.js';

/** As many as PostgreSQL's log has. */
const defaultSlotCount = 16;

/** What may differ from the defaults. */
export interface MemoryOptions {
  /** The databases' time. Default: the computer's clock. */
  readonly clock?: Clock;
  /** Into how many slots each log is cut by the models' ids. Default 16. */
  readonly slotCount?: number;
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
  faults = new MemoryFaults(),
}: MemoryOptions = {}): DatabaseDriver {
  let position = 0;
  return { open: () => new MemoryDatabase(clock, slotCount, faults, () => position++) };
}

import type { LeasedSlot, SlotLease, SlotLeases } from '@framework/core';
import type { MemoryAccess } from './memory-access.js';
import type { MemoryDeliveryTables } from './memory-delivery-tables.js';

/** Which process works on which slots, in memory. */
export class MemorySlotLeases implements SlotLeases {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  renew(processId: string, leaseMs: number): Promise<readonly SlotLease[]> {
    return this.#access.answer('leases.renew', (tables) => {
      const { processes, slotCount, nowMs } = tables;
      for (const [id, untilMs] of processes) {
        if (untilMs > nowMs) continue;
        processes.delete(id);
        for (const slot of slotsOf(tables, id)) tables.hand(slot, undefined, true);
      }
      processes.set(processId, nowMs + leaseMs);
      const fairCount = Math.ceil(slotCount / processes.size);
      const mine = slotsOf(tables, processId);
      for (const slot of mine.slice(fairCount)) tables.hand(slot, undefined, false);
      const free = slotsOf(tables, undefined).slice(0, Math.max(0, fairCount - mine.length));
      for (const slot of free) tables.hand(slot, processId, tables.leaseOf(slot).abandoned);
      return slotsOf(tables, processId).map((slot) => ({
        slot,
        token: tables.token(slot),
        abandoned: tables.leaseOf(slot).abandoned,
      }));
    });
  }

  release(processId: string): Promise<void> {
    return this.#access.answer('leases.release', (tables) => {
      tables.processes.delete(processId);
      for (const slot of slotsOf(tables, processId)) tables.hand(slot, undefined, false);
    });
  }

  list(): Promise<readonly LeasedSlot[]> {
    return this.#access.answer('leases.list', ({ slots, processes }) =>
      slots.map(({ processId }, slot) => {
        const untilMs = processes.get(processId ?? '');
        return { slot, processId, untilDate: untilMs === undefined ? undefined : new Date(untilMs) };
      }),
    );
  }
}

function slotsOf({ slots }: MemoryDeliveryTables, processId: string | undefined): readonly number[] {
  return [...slots.entries()].filter(([, each]) => each.processId === processId).map(([slot]) => slot);
}

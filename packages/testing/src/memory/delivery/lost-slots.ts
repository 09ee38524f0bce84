import type { MemoryDeliveryTables } from './memory-delivery-tables.js';

/** The slots of writes whose lease was lost, each once. */
export function lostSlots(
  tables: MemoryDeliveryTables,
  writes: readonly { readonly slot: number; readonly token: string }[],
): readonly number[] {
  const lost = writes.filter(({ slot, token }) => !tables.holds(slot, token));
  return [...new Set(lost.map(({ slot }) => slot))];
}

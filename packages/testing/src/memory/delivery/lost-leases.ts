import type { MemoryDeliveryTables } from './memory-delivery-tables.js';

/** The tokens of writes whose lease is lost, each once. */
export function lostLeases(
  tables: MemoryDeliveryTables,
  writes: readonly { readonly handler: string; readonly slot: number; readonly token: string }[],
): readonly string[] {
  const lost = writes.filter(({ handler, slot, token }) => !tables.holds(handler, slot, token));
  return [...new Set(lost.map(({ token }) => token))];
}

import type { MemoryDeliveryTables } from '../../memory/index.js';

/**
 * Whether handlers have nothing left to do: all is handled, or waits behind a dead letter.
 *
 * @param end how many events of the log count, the first ones
 */
export function isAtRest(tables: MemoryDeliveryTables, handlers: readonly string[], end: number): boolean {
  const place = Math.min(end, tables.log.length);
  return handlers.every((name) => {
    const handler = tables.names.get(name) ?? name;
    const isPaused = tables.handlers.get(handler);
    if (isPaused === undefined) return false;
    return isPaused || (hasPassed(tables, handler, place) && !isRetrying(tables, handler));
  });
}

function hasPassed(tables: MemoryDeliveryTables, handler: string, place: number): boolean {
  return Array.from(
    { length: tables.slotCount },
    (_unused, slot) => tables.cursor(handler, slot) >= place,
  ).every(Boolean);
}

function isRetrying(tables: MemoryDeliveryTables, handler: string): boolean {
  const byModel = Map.groupBy(
    tables.parkedOf(handler),
    ({ event: { modelName, modelId } }) => `${modelName} ${modelId}`,
  );
  return [...byModel.values()].some(([first]) => first?.dead === false);
}

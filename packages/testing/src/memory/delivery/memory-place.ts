import { type Cursor, InvalidCursorException } from '@framework/core';
import type { MemoryDeliveryTables } from './memory-delivery-tables.js';

/** The cursor before which so many events of the log lie, as it is learnt now. */
export function formatPlace({ timeline }: MemoryDeliveryTables, place: number): Cursor {
  return `${place}@${timeline}`;
}

/**
 * How many events of the log lie before a cursor; `undefined` when it was learnt before a failover.
 *
 * @throws InvalidCursorException `invalid-cursor` when it is none
 */
export function parsePlace({ timeline }: MemoryDeliveryTables, cursor: Cursor): number | undefined {
  const [, place, learntIn] = /^(\d+)@(\d+)$/.exec(cursor) ?? [];
  if (place === undefined) throw new InvalidCursorException(cursor);
  return Number(learntIn) === timeline ? Number(place) : undefined;
}

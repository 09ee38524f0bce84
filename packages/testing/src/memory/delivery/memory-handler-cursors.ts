import type {
  CursorMove,
  DeliverableEvent,
  HandlerCursor,
  HandlerCursors,
  HandlerLag,
  HandlerRegistration,
} from '@framework/core';
import { lostSlots } from './lost-slots.js';
import type { MemoryAccess } from './memory-access.js';
import type { MemoryDeliveryTables } from './memory-delivery-tables.js';

/** The handlers that a database in memory knows; a cursor is the number of events that lie before it. */
export class MemoryHandlerCursors implements HandlerCursors {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  register(handlers: readonly HandlerRegistration[]): Promise<void> {
    return this.#access.answer('cursors.register', (tables) => {
      for (const registration of handlers) {
        const { name, aliases, startFrom } = registration;
        if (tables.handlers.has(name)) continue;
        const old = aliases.find((alias) => tables.handlers.has(alias));
        if (old !== undefined) rename(tables, old, name);
        else add(tables, name, startOf(startFrom, tables.log));
      }
    });
  }

  load(slots: readonly number[]): Promise<readonly HandlerCursor[]> {
    return this.#access.answer('cursors.load', (tables) =>
      [...tables.handlers].flatMap(([handler, paused]) =>
        slots.map((slot) => ({ handler, slot, cursor: `${tables.cursor(handler, slot)}`, paused })),
      ),
    );
  }

  save(moves: readonly CursorMove[]): Promise<readonly number[]> {
    return this.#access.answer('cursors.save', (tables) => {
      for (const { handler, slot, token, cursor } of moves) {
        if (!tables.holds(slot, token)) continue;
        tables.cursors.set(`${handler} ${slot}`, Number(cursor));
        tables.writes.cursors++;
      }
      return lostSlots(tables, moves);
    });
  }

  setPaused(handler: string, paused: boolean): Promise<void> {
    return this.#access.answer('cursors.setPaused', ({ handlers }) => {
      handlers.set(handler, paused);
    });
  }

  hasPassed(handler: string, { id, slot }: DeliverableEvent): Promise<boolean> {
    return this.#access.answer(
      'cursors.hasPassed',
      (tables) => tables.log.findIndex((event) => event.id === id) < tables.cursor(handler, slot),
    );
  }

  lag(): Promise<readonly HandlerLag[]> {
    return this.#access.answer('cursors.lag', (tables) =>
      [...tables.handlers].map(([handler, paused]) => {
        const pending = tables.log.filter(({ slot }, index) => index >= tables.cursor(handler, slot));
        const rows = tables.parkedOf(handler);
        return {
          handler,
          paused,
          pendingCount: pending.length,
          oldestPendingMs: tables.nowMs - (pending[0]?.createdDate.getTime() ?? tables.nowMs),
          parkedCount: rows.length,
          deadCount: rows.filter(({ dead }) => dead).length,
        };
      }),
    );
  }
}

function startOf(startFrom: HandlerRegistration['startFrom'], log: readonly DeliverableEvent[]): number {
  if (startFrom === 'beginning') return 0;
  if (startFrom === 'now') return log.length;
  const first = log.findIndex(({ createdDate }) => createdDate >= startFrom.time);
  return first === -1 ? log.length : first;
}

function add(tables: MemoryDeliveryTables, name: string, place: number): void {
  tables.handlers.set(name, false);
  for (let slot = 0; slot < tables.slotCount; slot++) tables.cursors.set(`${name} ${slot}`, place);
}

/** Lets a handler take over what it had under its old name. */
function rename(tables: MemoryDeliveryTables, old: string, name: string): void {
  tables.handlers.set(name, tables.handlers.get(old) ?? false);
  tables.handlers.delete(old);
  for (let slot = 0; slot < tables.slotCount; slot++) {
    tables.cursors.set(`${name} ${slot}`, tables.cursor(old, slot));
    tables.cursors.delete(`${old} ${slot}`);
  }
  for (const row of tables.parkedOf(old)) {
    tables.parked.delete(`${old} ${row.event.id}`);
    tables.parked.set(`${name} ${row.event.id}`, { ...row, handler: name });
  }
}

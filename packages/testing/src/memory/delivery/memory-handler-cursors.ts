import {
  type CursorMove,
  type DeliverableEvent,
  type HandlerCursor,
  type HandlerCursors,
  HandlerInUseError,
  type HandlerLag,
  HandlerNamesError,
  type HandlerRegistration,
  type KnownHandler,
} from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import { type MemoryDeliveryTables, formatPlace, parsePlace, waits } from './memory-delivery-tables.js';
import { lostLeases } from './memory-slot-leases.js';

/** The handlers that a database in memory knows. A cursor is the number of events before it. */
export class MemoryHandlerCursors implements HandlerCursors {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  register(handler: HandlerRegistration): Promise<string> {
    return this.#access.answer('cursors.register', (tables) => {
      const id = idOf(tables.names, handler);
      if (!tables.handlers.has(id)) add(tables, id, startOf(handler.startFrom, tables.log));
      return id;
    });
  }

  find(name: string): Promise<string | undefined> {
    return this.#access.answer('cursors.find', ({ names }) => names.get(name));
  }

  known(): Promise<readonly KnownHandler[]> {
    return this.#access.answer('cursors.known', ({ handlers, names }) =>
      [...handlers].map(([handler, paused]) => ({
        handler,
        names: [...names].flatMap(([name, id]) => (id === handler ? [name] : [])),
        paused,
      })),
    );
  }

  load(slots: readonly number[]): Promise<readonly HandlerCursor[]> {
    return this.#access.answer('cursors.load', (tables) =>
      [...tables.handlers].flatMap(([handler, paused]) =>
        slots.map((slot) => {
          const cursor = formatPlace(tables, tables.cursor(handler, slot));
          return { handler, slot, cursor, paused };
        }),
      ),
    );
  }

  save(moves: readonly CursorMove[]): Promise<readonly string[]> {
    return this.#access.answer('cursors.save', (tables) => {
      const known = moves.flatMap((move) => {
        const place = parsePlace(tables, move.cursor);
        return place === undefined ? [] : [{ ...move, place }];
      });
      for (const { handler, slot, token, place } of known) {
        // A save whose sender no longer waits for it may arrive after a later one.
        if (!tables.holds(handler, slot, token) || place < tables.cursor(handler, slot)) continue;
        tables.cursors.set(`${handler} ${slot}`, place);
        tables.writes.cursors++;
      }
      const foreign = moves.filter(({ cursor }) => parsePlace(tables, cursor) === undefined);
      return [...new Set([...lostLeases(tables, moves), ...foreign.map(({ token }) => token)])];
    });
  }

  retire(handler: string, { discardBlocked }: { readonly discardBlocked: boolean }): Promise<void> {
    return this.#access.answer('cursors.retire', (tables) => {
      const { processes, nowMs } = tables;
      // A process whose lease has ended may merely be late, so it counts as a user for one more lease time.
      const user = [...processes]
        .filter(
          ([, { handlers, untilMs, leaseMs }]) => handlers.includes(handler) && untilMs + leaseMs > nowMs,
        )
        .sort(([, one], [, other]) => other.untilMs - one.untilMs)[0];
      if (user !== undefined) {
        const [processId, { untilMs }] = user;
        throw HandlerInUseError.by(handler, { processId, late: untilMs <= nowMs });
      }
      const blockedCount = tables.blockedOf(handler).length;
      if (blockedCount > 0 && !discardBlocked) {
        throw new HandlerInUseError(
          handler,
          `${blockedCount} models are blocked for it: discard what waits in them, or let a process handle it`,
        );
      }
      tables.forget(handler);
    });
  }

  setPaused(handler: string, paused: boolean): Promise<void> {
    return this.#access.answer('cursors.setPaused', ({ handlers }) => {
      if (handlers.has(handler)) handlers.set(handler, paused);
    });
  }

  lag(): Promise<readonly HandlerLag[]> {
    return this.#access.answer('cursors.lag', (tables) =>
      [...tables.handlers].map(([handler, paused]) => {
        const pending = tables.log.filter(({ slot }, index) => index >= tables.cursor(handler, slot));
        const waiting = tables.log.filter(
          (event, index) => index < tables.cursor(handler, event.slot) && waits(tables, handler, event),
        );
        return {
          handler,
          paused,
          pendingCount: pending.length,
          oldestPendingMs: tables.nowMs - (pending[0]?.createdDate.getTime() ?? tables.nowMs),
          blockedCount: waiting.length,
          deadCount: tables.blockedOf(handler).filter(({ dead }) => dead).length,
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

function add(tables: MemoryDeliveryTables, handler: string, place: number): void {
  tables.handlers.set(handler, false);
  for (let slot = 0; slot < tables.slotCount; slot++) {
    tables.cursors.set(`${handler} ${slot}`, place);
    tables.hand({ handler, slot }, undefined, false);
  }
}

/** Returns the permanent id of the handler that has or had one of these names, and assigns all names to it. */
function idOf(names: Map<string, string>, { name, aliases }: HandlerRegistration): string {
  const all = [name, ...aliases];
  const ids = [...new Set(all.flatMap((each) => names.get(each) ?? []))];
  if (ids.length > 1) throw new HandlerNamesError(name, ids.toSorted());
  const [id = name] = ids;
  for (const each of all) names.set(each, id);
  return id;
}

import type { DatabaseDelivery, HandlerLag, KnownHandler, LeasedSlot } from '@framework/core/adapter';

import { type PartialAnswer, ask, shardTexts } from './answers.js';

/** At this count, blocked events are not counted further. */
const blockedCountMax = 10_000;

/** How far a handler or relay is in one database. */
export interface ConsumerPlace {
  /** The shards of the database, as `group/member`. */
  readonly shards: readonly string[];
  readonly paused: boolean;
  /** Events that its cursors have not passed, counted among the first 100,000 after the one that is furthest behind. */
  readonly pendingCount: number;
  /** The age of the oldest of them, in milliseconds; 0 when there is none. */
  readonly oldestPendingMs: number;
  /** Events that its cursors have passed and that wait in blocked models, the heads included; at least as many if `blockedIsLowerBound`. */
  readonly blockedCount: number;
  readonly blockedIsLowerBound: boolean;
  /** How many models are blocked by a dead letter; at least as many if `deadIsLowerBound`. */
  readonly deadCount: number;
  readonly deadIsLowerBound: boolean;
  /** The processes that work for it, and in how many slots. */
  readonly processes: readonly ConsumerProcess[];
  /** How many of its slots no process works in. */
  readonly freeSlotCount: number;
}

/** A process that works for a handler. */
export interface ConsumerProcess {
  readonly processId: string;
  readonly slotCount: number;
  /** When it loses its slots unless it reports that it is alive. */
  readonly untilDate: Date | undefined;
}

/** A handler or a relay, in all databases that know it. */
export interface Consumer {
  /** The permanent id. */
  readonly handler: string;
  /** All names that it has or had. */
  readonly names: readonly string[];
  /** Whether it publishes to a broker. */
  readonly isRelay: boolean;
  readonly databases: readonly ConsumerPlace[];
}

/**
 * Each handler and relay of the databases, by permanent id.
 *
 * @param relays the names of the relays
 */
export async function findConsumers(
  databases: readonly DatabaseDelivery[],
  relays: ReadonlySet<string>,
): Promise<PartialAnswer<Consumer>> {
  const { items, failures } = await ask(databases, async ({ store, shards }) => {
    const [known, lags, leases] = await Promise.all([
      store.cursors.known(),
      store.cursors.lag(),
      store.leases.list(),
    ]);
    return lags.map((lag) => ({
      handler: lag.handler,
      names: namesOf(known, lag.handler),
      place: placeOf(lag, leases, shardTexts(shards)),
    }));
  });
  const consumers = [...Map.groupBy(items, ({ handler }) => handler)].map(([handler, found]) => {
    const names = [...new Set(found.flatMap((each) => each.names))].toSorted();
    const isRelay = names.some((name) => relays.has(name));
    return { handler, names, isRelay, databases: found.map(({ place }) => place) };
  });
  return { items: consumers.toSorted((one, other) => (one.handler < other.handler ? -1 : 1)), failures };
}

function namesOf(known: readonly KnownHandler[], handler: string): readonly string[] {
  return known.find((each) => each.handler === handler)?.names ?? [handler];
}

function placeOf(lag: HandlerLag, leases: readonly LeasedSlot[], shards: readonly string[]): ConsumerPlace {
  const { handler, paused, pendingCount, oldestPendingMs, blockedCount, deadCount } = lag;
  const own = leases.filter((lease) => lease.handler === handler);
  const held = own.flatMap(({ processId, untilDate }) =>
    processId === undefined ? [] : [{ processId, untilDate }],
  );
  const processes = [...Map.groupBy(held, ({ processId }) => processId)].map(([processId, slots]) => ({
    processId,
    slotCount: slots.length,
    untilDate: slots[0]?.untilDate,
  }));
  return {
    shards,
    paused,
    pendingCount,
    oldestPendingMs,
    blockedCount,
    blockedIsLowerBound: blockedCount >= blockedCountMax,
    deadCount,
    deadIsLowerBound: deadCount >= blockedCountMax,
    processes,
    freeSlotCount: own.length - held.length,
  };
}

import type { LeaseRenewal, LeasedSlot, SlotLease, SlotLeases } from '@framework/core/adapter';

import type { MemoryAccess } from './memory-access.js';
import type { MemoryDeliveryTables, MemoryLease, MemoryProcess } from './memory-delivery-tables.js';

/** The leases of slots, in memory. */
export class MemorySlotLeases implements SlotLeases {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  renew(
    processId: string,
    handlers: readonly string[],
    leaseMs: number,
    shards: readonly string[] = [],
    givenBack: readonly string[] = [],
  ): Promise<LeaseRenewal> {
    return this.#access.answer('leases.renew', (tables) => {
      restartTimes(tables);
      for (const lease of held(tables, processId))
        if (givenBack.includes(lease.token) || !handlers.includes(lease.handler))
          tables.hand(lease, undefined, lease.abandoned);
      stayAlive(tables, processId, { handlers, shards }, leaseMs);
      dropVanished(tables);
      const leases = [...tables.handlers.keys()].flatMap((handler) => share(tables, handler, processId));
      return { leases, alone: tables.processes.size === 1, othersEndInMs: othersEndInMs(tables, processId) };
    });
  }

  recovered(tokens: readonly string[]): Promise<void> {
    return this.#access.answer('leases.recovered', (tables) => {
      for (const lease of tables.leases)
        if (tokens.includes(lease.token) && lease.timeline === tables.timeline) tables.recover(lease);
    });
  }

  release(processId: string): Promise<void> {
    return this.#access.answer('leases.release', (tables) => {
      tables.processes.delete(processId);
      for (const lease of held(tables, processId)) tables.hand(lease, undefined, lease.abandoned);
    });
  }

  list(): Promise<readonly LeasedSlot[]> {
    return this.#access.answer('leases.list', ({ leases, processes }) =>
      leases.map(({ handler, slot, processId }) => {
        const untilMs = processes.get(processId ?? '')?.untilMs;
        return {
          handler,
          slot,
          processId,
          untilDate: untilMs === undefined ? undefined : new Date(untilMs),
        };
      }),
    );
  }
}

/** What processes have said in another history counts from now on. */
function restartTimes({ processes, nowMs, timeline }: MemoryDeliveryTables): void {
  for (const [id, process] of processes)
    if (process.timeline !== timeline)
      processes.set(id, { ...process, timeline, untilMs: nowMs + process.leaseMs });
}

/**
 * Renews a process's own entry. If even this process is late, others probably could not renew either, so none of them
 * counts as vanished yet.
 */
function stayAlive(
  tables: MemoryDeliveryTables,
  processId: string,
  has: Pick<MemoryProcess, 'handlers' | 'shards'>,
  leaseMs: number,
): void {
  const { processes, nowMs, timeline } = tables;
  const untilMs = nowMs + leaseMs;
  const isLate = (processes.get(processId)?.untilMs ?? Infinity) <= nowMs;
  if (isLate)
    for (const [id, other] of processes) if (other.untilMs <= nowMs) processes.set(id, { ...other, untilMs });
  for (const lease of held(tables, processId))
    if (isLate || lease.timeline !== timeline) tables.hand(lease, processId, lease.abandoned);
  processes.set(processId, { ...has, untilMs, leaseMs, timeline });
}

function dropVanished(tables: MemoryDeliveryTables): void {
  const { processes, nowMs } = tables;
  for (const [id, { untilMs }] of processes) {
    if (untilMs > nowMs) continue;
    processes.delete(id);
    for (const lease of held(tables, id)) tables.hand(lease, undefined, true);
  }
}

/** Takes free slots of a handler up to the process's fair share; returns those that it holds. */
function share(tables: MemoryDeliveryTables, handler: string, processId: string): readonly SlotLease[] {
  const having = [...tables.processes].filter(([, { handlers }]) => handlers.includes(handler));
  const sharing = having.filter(([, one]) => !having.some(([, other]) => isSuperset(other, one)));
  const isSharing = sharing.some(([id]) => id === processId);
  const fairCount = isSharing ? Math.ceil(tables.slotCount / sharing.length) : 0;
  const slots = (processOf: string | undefined): readonly MemoryLease[] =>
    Array.from({ length: tables.slotCount }, (_unused, slot) => tables.leaseOf(handler, slot)).filter(
      (lease) => lease.processId === processOf,
    );
  const count = Math.max(0, fairCount - slots(processId).length);
  for (const lease of slots(undefined).slice(0, count)) tables.hand(lease, processId, lease.abandoned);
  return slots(processId).map(({ slot, token, abandoned }, index) => {
    return { handler, slot, token, abandoned, surplus: index >= fairCount };
  });
}

/** Whether a process knows all shards of another one and more, so that the other one gives way. */
function isSuperset({ shards }: MemoryProcess, other: MemoryProcess): boolean {
  return (
    other.shards.every((shard) => shards.includes(shard)) &&
    !shards.every((shard) => other.shards.includes(shard))
  );
}

/** How long until the first of the other processes counts as vanished, unless it renews its leases. */
function othersEndInMs({ processes, nowMs }: MemoryDeliveryTables, processId: string): number | undefined {
  const others = [...processes].filter(([id]) => id !== processId);
  return others.length === 0 ? undefined : Math.min(...others.map(([, { untilMs }]) => untilMs)) - nowMs;
}

function held({ leases }: MemoryDeliveryTables, processId: string): readonly MemoryLease[] {
  return leases.filter((lease) => lease.processId === processId);
}

/** The tokens of writes whose lease was lost, each once. */
export function lostLeases(
  tables: MemoryDeliveryTables,
  writes: readonly { readonly handler: string; readonly slot: number; readonly token: string }[],
): readonly string[] {
  const lost = writes.filter(({ handler, slot, token }) => !tables.holds(handler, slot, token));
  return [...new Set(lost.map(({ token }) => token))];
}

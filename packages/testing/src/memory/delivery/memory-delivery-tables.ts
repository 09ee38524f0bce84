import type { Clock, DeliverableEvent } from '@framework/core';

/** Who holds a slot. */
export interface MemorySlot {
  readonly processId: string | undefined;
  readonly token: number;
  readonly abandoned: boolean;
}

/** A parked event with what the store keeps of it. */
export interface MemoryParked {
  readonly handler: string;
  readonly event: DeliverableEvent;
  attempts: number;
  error: string | undefined;
  nextMs: number;
  dead: boolean;
  readonly suspect: boolean;
  readonly parkedMs: number;
}

const unheld: MemorySlot = { processId: undefined, token: 0, abandoned: false };

/** The delivery tables of one database, in memory: shared by the stores of all processes of a test. */
export class MemoryDeliveryTables {
  readonly slotCount: number;
  /** In the order of commits. */
  readonly log: DeliverableEvent[] = [];
  readonly slots: MemorySlot[];
  /** Until when each process is alive, in milliseconds. */
  readonly processes = new Map<string, number>();
  /** Paused handlers are true. */
  readonly handlers = new Map<string, boolean>();
  /** By handler and slot: how much of the log is done or parked. */
  readonly cursors = new Map<string, number>();
  readonly parked = new Map<string, MemoryParked>();
  readonly listeners = new Set<() => void>();
  /** How many rows were written, by kind. */
  readonly writes = { cursors: 0, parked: 0, attempts: 0, notifies: 0 };
  readonly #clock: Clock;

  /** @param slotCount into how many slots the log is cut by the models' ids. Default 4 */
  constructor(clock: Clock, slotCount = 4) {
    this.#clock = clock;
    this.slotCount = slotCount;
    this.slots = Array.from({ length: slotCount }, () => unheld);
  }

  /** The database's time. */
  get nowMs(): number {
    return this.#clock.now().getTime();
  }

  /** Commits events that belong together. */
  commit(...events: readonly DeliverableEvent[]): void {
    this.log.push(...events);
  }

  /** Where a handler stands in a slot; at the beginning when it is not registered. */
  cursor(handler: string, slot: number): number {
    return this.cursors.get(`${handler} ${slot}`) ?? 0;
  }

  /** Sets handlers back, or forward, to a place in the log. */
  moveCursors(place: number): void {
    for (const key of this.cursors.keys()) this.cursors.set(key, place);
  }

  /** All parked events of a model for a handler, the first one first. */
  parkedOf(handler: string, modelId?: string): readonly MemoryParked[] {
    return [...this.parked.values()]
      .filter((row) => row.handler === handler && (modelId ?? row.event.modelId) === row.event.modelId)
      .sort(inOrder);
  }

  /** The token of a slot's lease, as text. */
  token(slot: number): string {
    return `${this.leaseOf(slot).token}`;
  }

  /** Whether whoever has this token still holds the slot. */
  holds(slot: number, token: string): boolean {
    return this.token(slot) === token;
  }

  /** Who holds a slot. */
  leaseOf(slot: number): MemorySlot {
    return this.slots[slot] ?? unheld;
  }

  /** Gives a slot to a process, or to nobody; what an earlier holder still writes is refused. */
  hand(slot: number, processId: string | undefined, abandoned: boolean): void {
    this.slots[slot] = { processId, token: this.leaseOf(slot).token + 1, abandoned };
  }

  /** Forgets all events; the handlers stay registered, and start at the beginning of what comes. */
  clear(): void {
    this.log.length = 0;
    this.parked.clear();
    this.moveCursors(0);
  }
}

/** The order in which the events of one model were made. */
export function inOrder(one: MemoryParked, other: MemoryParked): number {
  return one.event.modelVersion - other.event.modelVersion || one.event.ordinal - other.event.ordinal;
}

import type { Clock, DeliverableEvent } from '@framework/core';

/** Who holds a slot. */
export interface MemorySlot {
  processId: string | undefined;
  token: number;
  abandoned: boolean;
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

/** The delivery tables of one database, in memory: shared by the stores of all processes of a test. */
export class MemoryDatabase {
  readonly slotCount: number;
  readonly clock: Clock;
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

  constructor(clock: Clock, slotCount = 4) {
    this.clock = clock;
    this.slotCount = slotCount;
    this.slots = Array.from({ length: slotCount }, () => ({
      processId: undefined,
      token: 0,
      abandoned: false,
    }));
  }

  get nowMs(): number {
    return this.clock.now().getTime();
  }

  /** Commits events that belong together. */
  commit(...events: readonly DeliverableEvent[]): void {
    this.log.push(...events);
  }

  /** All parked events of a model for a handler, the first one first. */
  parkedOf(handler: string, modelId?: string): readonly MemoryParked[] {
    return [...this.parked.values()]
      .filter((row) => row.handler === handler && (modelId ?? row.event.modelId) === row.event.modelId)
      .sort(inOrder);
  }

  holds(slot: number, token: string): boolean {
    return `${this.slots[slot]!.token}` === token;
  }

  /** Gives a slot to a process, or to nobody; what an earlier holder still writes is refused. */
  hand(slot: number, processId: string | undefined, abandoned: boolean): void {
    const { token } = this.slots[slot]!;
    this.slots[slot] = { processId, token: token + 1, abandoned };
  }
}

/** The order in which the events of one model were made. */
export function inOrder(one: MemoryParked, other: MemoryParked): number {
  return one.event.modelVersion - other.event.modelVersion || one.event.ordinal - other.event.ordinal;
}

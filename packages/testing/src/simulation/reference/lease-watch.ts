import type { MemoryDeliveryTables } from '../../memory/index.js';

/** What a renewal told a process about a slot. */
export interface Grant {
  readonly token: string;
  /** Unique per lease. If the process let a lease lapse, the next renewal begins another lease. */
  readonly lease: string;
  /** When the token was first seen, in the order of all grants and pauses. */
  readonly seen: number;
  /** Until when the process may work under the lease. */
  readonly untilMs: number;
  /** The step at which the process was told; `Infinity` while the answer is on its way. */
  readonly toldStep: number;
  /**
   * The step at which the process was told that it has lost the slot; `Infinity` until it is told, `undefined`
   * while it has the slot.
   */
  readonly endStep?: number | undefined;
}

interface Holder {
  readonly process: string;
  readonly untilMs: number;
}

/**
 * Follows the renewals in one database, to know which process may work in which slot, and reports when two may
 * work in one slot.
 */
export class LeaseWatch {
  readonly #tables: MemoryDeliveryTables;
  readonly #leaseMs: number;
  readonly #violated: (text: string) => void;
  /** The ids of processes in the database, by process name. */
  readonly #ids = new Map<string, string>();
  /** What processes know about their leases: by process name, then by handler and slot. */
  readonly #grants = new Map<string, Map<string, Grant>>();
  readonly #holders = new Map<string, Holder>();
  /** When handlers were paused, in the order of all grants and pauses, because much can happen within one millisecond. */
  readonly #pauses = new Map<string, number>();
  #seenCount = 0;
  /** When each process last requested its leases. */
  readonly #askedMs = new Map<string, number>();
  /** How many calls are running, by process, handler, slot and lease. */
  readonly #calls = new Map<string, number>();
  /** Until when each process may work according to the last answer. */
  readonly #knownUntilMs = new Map<string, number>();
  #timeline = 0;
  #leaseCount = 0;

  /** @param leaseMs how long a lease lasts after its renewal */
  constructor(tables: MemoryDeliveryTables, leaseMs: number, violated: (text: string) => void) {
    this.#tables = tables;
    this.#leaseMs = leaseMs;
    this.#violated = violated;
  }

  /** What a process may know about its lease of a slot; `undefined` if it never had one. */
  grant(process: string, handler: string, slot: number): Grant | undefined {
    return this.#grants.get(process)?.get(`${handler} ${slot}`);
  }

  /** Whether a process holds a slot according to the database. */
  holds(process: string, handler: string, slot: number): boolean {
    const { processId } = this.#tables.leaseOf(handler, slot);
    return processId !== undefined && processId === this.#ids.get(process);
  }

  /** Whether a handler is paused, and was already paused when a lease was granted. */
  wasPaused(handler: string, { seen }: Grant): boolean {
    return this.#tables.handlers.get(handler) === true && (this.#pauses.get(handler) ?? Infinity) < seen;
  }

  /** Records which handlers are paused. Must be called whenever a process may find that out. */
  notePauses(): void {
    for (const [handler, isPaused] of this.#tables.handlers) {
      if (!isPaused) this.#pauses.delete(handler);
      else if (!this.#pauses.has(handler)) this.#pauses.set(handler, ++this.#seenCount);
    }
  }

  /** Records that a call begins under a lease; returns a function to call when it has ended. */
  called(process: string, handler: string, slot: number, lease: string): () => void {
    const key = `${process} ${handler} ${slot} ${lease}`;
    const add = (change: 1 | -1): void => void this.#calls.set(key, (this.#calls.get(key) ?? 0) + change);
    add(1);
    return () => add(-1);
  }

  /** Records what the database has just granted to a process. */
  renewed(process: string): void {
    const { leases, timeline, nowMs } = this.#tables;
    this.notePauses();
    // After a failover no token is valid any more, so all holders are forgotten.
    if (timeline !== this.#timeline) this.#holders.clear();
    this.#timeline = timeline;
    const id = this.#idOf(process);
    const grants = this.#grants.get(process) ?? new Map<string, Grant>();
    this.#grants.set(process, grants);
    const untilMs = nowMs + this.#leaseMs;
    const had = new Map(grants);
    for (const { handler, slot, processId, token } of leases) {
      const place = `${handler} ${slot}`;
      const holder = this.#holders.get(place);
      if (processId !== id) {
        // The process has given the slot back with this renewal, unless another one has it already, or its lease had run out before.
        if (holder?.process === process && processId === undefined && holder.untilMs > nowMs)
          this.#givenBack(process, place);
        if (holder?.process === process) this.#holders.delete(place);
        continue;
      }
      if (holder !== undefined && holder.process !== process && holder.untilMs > nowMs)
        this.#violated(`${process} is given slot ${slot} of ${handler}, which ${holder.process} holds`);
      const before = grants.get(place);
      const isSame = before?.token === token;
      const { seen, toldStep, lease } = isSame
        ? before
        : { seen: ++this.#seenCount, toldStep: Infinity, lease: this.#newLease() };
      had.delete(place);
      grants.set(place, { token, lease, seen, untilMs, toldStep });
      this.#holders.set(place, { process, untilMs });
    }
    for (const [place, grant] of had) grants.set(place, { endStep: Infinity, ...grant });
  }

  /**
   * Records that the answer to the last renewal has reached its process.
   *
   * @returns whether its leases had run out in the meantime
   */
  told(
    process: string,
    { nowMs, stepCount }: { readonly nowMs: number; readonly stepCount: number },
  ): boolean {
    const hasLapsed = nowMs >= (this.#knownUntilMs.get(process) ?? Infinity);
    this.#knownUntilMs.set(process, (this.#askedMs.get(process) ?? nowMs) + this.#leaseMs);
    const grants = this.#grants.get(process) ?? new Map<string, Grant>();
    for (const [place, grant] of grants) {
      const lease = hasLapsed ? this.#newLease() : grant.lease;
      const { toldStep, endStep } = grant;
      grants.set(place, {
        ...grant,
        lease,
        toldStep: Math.min(toldStep, stepCount),
        ...(endStep !== undefined && { endStep: Math.min(endStep, stepCount) }),
      });
    }
    return hasLapsed;
  }

  /** Records that a process requests its leases. */
  asked(process: string, nowMs: number): void {
    this.#askedMs.set(process, nowMs);
  }

  /** Records that a process has given all its slots back. */
  released(process: string): void {
    this.#grants.delete(process);
    for (const [place, holder] of this.#holders) if (holder.process === process) this.#holders.delete(place);
  }

  #givenBack(process: string, place: string): void {
    const lease = this.#grants.get(process)?.get(place)?.lease ?? '';
    if ((this.#calls.get(`${process} ${place} ${lease}`) ?? 0) > 0)
      this.#violated(`${process} gives ${place} back while it calls the handler for that slot`);
  }

  #newLease(): string {
    return `lease ${++this.#leaseCount}`;
  }

  /** A process's id in the database: the one that was new there after the process's first renewal. */
  #idOf(process: string): string | undefined {
    if (!this.#ids.has(process)) {
      const known = new Set(this.#ids.values());
      const id = [...this.#tables.processes.keys()].find((each) => !known.has(each));
      if (id !== undefined) this.#ids.set(process, id);
    }
    return this.#ids.get(process);
  }
}

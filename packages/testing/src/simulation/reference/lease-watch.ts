import type { MemoryDeliveryTables } from '../../memory/index.js';

/** What a process was told of a slot when it renewed its leases. */
export interface Grant {
  readonly token: string;
  /** Differs from that of any other lease, and from the same one after the process has let it lapse. */
  readonly lease: string;
  /** When the token was new, in the order in which grants and pauses were seen. */
  readonly seen: number;
  /** How long it may work by it. */
  readonly untilMs: number;
  /** At which step it was told; `Infinity` while the answer is on its way. */
  readonly toldStep: number;
  /** At which step it was told that it has the slot no more; `Infinity` while it was not, `undefined` while it has it. */
  readonly endStep?: number | undefined;
}

interface Holder {
  readonly process: string;
  readonly untilMs: number;
}

/** Knows from the renewals in one database which process may work in which slot, and finds two that may at one time. */
export class LeaseWatch {
  readonly #tables: MemoryDeliveryTables;
  readonly #leaseMs: number;
  readonly #violated: (text: string) => void;
  /** The ids in the database, by the names of the processes. */
  readonly #ids = new Map<string, string>();
  /** By the names of the processes, and by handlers and slots. */
  readonly #grants = new Map<string, Map<string, Grant>>();
  readonly #holders = new Map<string, Holder>();
  /** When handlers were paused, in the same order: much happens within one millisecond. */
  readonly #pauses = new Map<string, number>();
  #seenCount = 0;
  /** When processes have asked for their leases last, and until when they may work by what they were told. */
  readonly #askedMs = new Map<string, number>();
  readonly #knownUntilMs = new Map<string, number>();
  #timeline = 0;
  #leaseCount = 0;

  /** @param leaseMs how long a lease lasts from its renewal */
  constructor(tables: MemoryDeliveryTables, leaseMs: number, violated: (text: string) => void) {
    this.#tables = tables;
    this.#leaseMs = leaseMs;
    this.#violated = violated;
  }

  /** What a process may know of its lease of a slot; `undefined` when it never had one. */
  grant(process: string, handler: string, slot: number): Grant | undefined {
    return this.#grants.get(process)?.get(`${handler} ${slot}`);
  }

  /** Whether a process holds a slot, as the database has it. */
  holds(process: string, handler: string, slot: number): boolean {
    const { processId } = this.#tables.leaseOf(handler, slot);
    return processId !== undefined && processId === this.#ids.get(process);
  }

  /** Whether a handler is paused, and was already when a lease was granted. */
  wasPaused(handler: string, { seen }: Grant): boolean {
    return this.#tables.handlers.get(handler) === true && (this.#pauses.get(handler) ?? Infinity) < seen;
  }

  /** Takes note of which handlers are paused; to be called whenever a process may learn that. */
  notePauses(): void {
    for (const [handler, isPaused] of this.#tables.handlers) {
      if (!isPaused) this.#pauses.delete(handler);
      else if (!this.#pauses.has(handler)) this.#pauses.set(handler, ++this.#seenCount);
    }
  }

  /** Takes note of what the database has just granted to a process. */
  renewed(process: string): void {
    const { leases, timeline, nowMs } = this.#tables;
    this.notePauses();
    // Who holds what after a failover is begun anew: nobody's token is valid any more.
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
        // It has given the slot back by this renewal.
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
   * Takes note that the answer of the last renewal has come back to its process.
   *
   * @returns whether the time of its leases had ended meanwhile
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

  /** Takes note that a process asks for its leases. */
  asked(process: string, nowMs: number): void {
    this.#askedMs.set(process, nowMs);
  }

  /** Takes note that a process has given all its slots back. */
  released(process: string): void {
    this.#grants.delete(process);
    for (const [place, holder] of this.#holders) if (holder.process === process) this.#holders.delete(place);
  }

  #newLease(): string {
    return `lease ${++this.#leaseCount}`;
  }

  /** The database knows processes by ids of their own: the one that is new after its first renewal. */
  #idOf(process: string): string | undefined {
    if (!this.#ids.has(process)) {
      const known = new Set(this.#ids.values());
      const id = [...this.#tables.processes.keys()].find((each) => !known.has(each));
      if (id !== undefined) this.#ids.set(process, id);
    }
    return this.#ids.get(process);
  }
}

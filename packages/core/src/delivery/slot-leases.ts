/** One slot in which a process works for a handler. */
export interface SlotLease {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  /** Differs from that of every other lease: what an earlier holder still writes is refused by it. */
  readonly token: string;
  /** Whether the holder before vanished with it: an event beyond the cursor may have killed it. */
  readonly abandoned: boolean;
}

/** What a process learns when it says that it is alive. */
export interface LeaseRenewal {
  /** All leases that it holds now. */
  readonly leases: readonly SlotLease[];
  /** Whether no other process delivers the events of the database. */
  readonly alone: boolean;
  /**
   * After how many milliseconds another process loses its slots, the first one that does, unless it says that it is alive.
   * Default: not known, and they are had by the next renewal.
   */
  readonly othersEndInMs?: number | undefined;
}

/** Who works in a slot for a handler, for operators. */
export interface LeasedSlot {
  /** The handler's permanent id. */
  readonly handler: string;
  readonly slot: number;
  /** `undefined` when nobody does. */
  readonly processId: string | undefined;
  /** When the holder loses it unless it says that it is alive. */
  readonly untilDate: Date | undefined;
}

/**
 * Port: which process works in which slots of one database, for which handlers.
 *
 * A lease is valid in the history of the database in which it was given: after a crash, a failover or in a copy it is nobody's,
 * and what is written under it is refused.
 */
export interface SlotLeases {
  /**
   * Reports that the process is alive, has these handlers and knows these shards; releases slots beyond its fair share of
   * each handler, and takes free ones up to it.
   *
   * It has no share of a handler while another process has that handler and knows all of these shards and more: an event that
   * needs one of the others would wait here for as long as the process lives.
   *
   * A process that is late itself takes nothing from others that are: the database was unreachable then, and no process
   * vanished.
   *
   * @param handlers the permanent ids
   * @param shards on which the handlers can execute actions. Default: none
   */
  renew(
    processId: string,
    handlers: readonly string[],
    leaseMs: number,
    shards?: readonly string[],
  ): Promise<LeaseRenewal>;
  /** Gives all slots of the process back, for others to take at once. */
  release(processId: string): Promise<void>;
  /** Who works where now, for operators; one row for each slot of each handler. */
  list(): Promise<readonly LeasedSlot[]>;
}

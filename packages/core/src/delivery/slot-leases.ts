/** One slot that a process holds. */
export interface SlotLease {
  readonly slot: number;
  /** Differs each time that the slot changes hands: what an earlier holder still writes is refused by it. */
  readonly token: string;
  /** Whether the holder before vanished with it: an event beyond the cursors may have killed it. */
  readonly abandoned: boolean;
}

/** Who holds a slot, for operators. */
export interface LeasedSlot {
  readonly slot: number;
  /** `undefined` when nobody does. */
  readonly processId: string | undefined;
  /** When the holder loses it unless it says that it is alive. */
  readonly untilDate: Date | undefined;
}

/** Port: which process works on which slots of one database. */
export interface SlotLeases {
  /**
   * Says that the process is alive, gives slots back beyond its fair share, and takes free ones up to it.
   *
   * @returns all slots that the process holds now
   */
  renew(processId: string, leaseMs: number): Promise<readonly SlotLease[]>;
  /** Gives all slots of the process back, for others to take at once. */
  release(processId: string): Promise<void>;
  /** Whose slot it is now, for operators; one row for each slot. */
  list(): Promise<readonly LeasedSlot[]>;
}

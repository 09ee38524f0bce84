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

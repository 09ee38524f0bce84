/** A place in the log of a database: what lies before it is done or parked. Opaque; equal places are equal texts. */
export type Cursor = string;

/** Where a new handler starts: at the first event there is, at the next one, or at those created since a time. */
export type StartFrom = 'beginning' | 'now' | { readonly time: Date };

/** A handler, as the database knows it. */
export interface HandlerRegistration {
  /** Durable and unique. */
  readonly name: string;
  /** Names that it had before. */
  readonly aliases: readonly string[];
  readonly startFrom: StartFrom;
}

/** Where a handler stands in one slot. */
export interface HandlerCursor {
  readonly handler: string;
  readonly slot: number;
  readonly cursor: Cursor;
  /** An operator has stopped it; its cursor stays. */
  readonly paused: boolean;
}

/** A handler's new place in one slot, to be saved under the lease of that slot. */
export interface CursorMove {
  readonly handler: string;
  readonly slot: number;
  readonly token: string;
  readonly cursor: Cursor;
}

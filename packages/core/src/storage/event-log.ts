import type { Page } from './repository.js';

/** One row of the log. */
export interface LoggedEvent {
  readonly id: string;
  readonly actionId: string;
  readonly actionName: string;
  readonly principal: string;
  /** The event's position among those of its action. */
  readonly ordinal: number;
  readonly modelId: string;
  readonly modelName: string;
  /** The version that the change produced. */
  readonly modelVersion: number;
  readonly type: string;
  /** The event's own fields, as JSON values. */
  readonly payload: unknown;
  readonly createdDate: Date;
}

/** Port: reads the log of one shard. */
export interface EventLog {
  /**
   * The history of one model, oldest first, by version and then by ordinal; empty for an id that no model can have.
   *
   * @param page the maximum number of events, 1 to 1,000 (0 counts as 1, a higher number as 1,000), and the `next` of the
   * previous page
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   * @throws InvariantViolationError `invariant-violation` when the limit is not a whole number, or is negative
   */
  findByModel(
    model: { readonly name: string; readonly id: string },
    page: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<LoggedEvent>>;
}

/** A row of the log with everything that a handler may need. */
export interface DeliverableEvent extends LoggedEvent {
  /** The slot of its model's id. */
  readonly slot: number;
  readonly namespace: string;
  /** The action's params as JSON values. */
  readonly actionParams: unknown;
  /** Trace context and the caller's headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** Its approximate size with payload and params, in bytes, if the store knows it. */
  readonly bytes?: number;
  /**
   * Whether payload and params were left out because the event is large; large headers are left out, too. {@link
   * DeliveryLog.load} returns them. Default false.
   */
  readonly omitted?: boolean;
  /** When the action began, by the clock of its process. */
  readonly startedDate: Date;
}

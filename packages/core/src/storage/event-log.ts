import type { Page } from './repository.js';

/** One row of the log. */
export interface LoggedEvent {
  readonly id: string;
  readonly actionId: string;
  readonly actionName: string;
  readonly principal: string;
  /** The event's place among those of its action. */
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
   * @param page how many events at most, 1 to 1,000 (0 and more than that count as the nearest), and the `next` of the page before
   * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
   * @throws InvariantViolationError `invariant-violation` when the limit is no whole number, or below zero
   */
  findByModel(
    model: { readonly name: string; readonly id: string },
    page: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<LoggedEvent>>;
}

/** A row of the log with everything that a handler may want to know. */
export interface DeliverableEvent extends LoggedEvent {
  /** The slot that its model's id falls into. */
  readonly slot: number;
  readonly namespace: string;
  /** The action's params as JSON values. */
  readonly actionParams: unknown;
  /** Trace context and the caller's headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** About how many bytes it has with payload and params, where the store knows. */
  readonly bytes?: number;
  /** Whether payload and params were left out, because it is large: {@link DeliveryLog.load} gives them. Default false. */
  readonly omitted?: boolean;
  /** When the action began, by the clock of its process. */
  readonly startedDate: Date;
}

import type { LoggedEvent } from '../persistence/event-log.js';

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

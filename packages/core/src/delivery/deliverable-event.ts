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
  /** When the action began, by the clock of its process. */
  readonly startedDate: Date;
}

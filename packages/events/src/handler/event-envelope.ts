import type { ShardIdentifier } from '@framework/core';
import type { AnyHandledEvent } from './event-handler.js';

/**
 * An event as a handler receives it: read from the log, the same whenever it is delivered, except for `attempt`.
 *
 * Its fields are read when a handler looks at them; a copy by spread has none of them.
 */
export interface EventEnvelope<E extends AnyHandledEvent> {
  /**
   * The event, decoded by the schema of its class when it is first read; `undefined` for a handler of all events.
   *
   * @throws UnstorableValueException `unstorable-value` when the payload does not fit the schema
   */
  readonly event: E;
  /** The same wherever and however often the event is delivered. */
  readonly eventId: string;
  /** The durable name of the event's class. */
  readonly eventType: string;
  /** The event's own fields, as the JSON values of the log. */
  readonly payload: unknown;
  /** The shard that the model's id carries; where it carries none, the first one of the event's database. */
  readonly shard: ShardIdentifier;
  /** Of the service that wrote it: names with dots between. */
  readonly namespace: string;
  readonly modelId: string;
  readonly modelName: string;
  /** The version that the change produced. */
  readonly modelVersion: number;
  /** The event's place among those of its action. */
  readonly ordinal: number;
  readonly actionId: string;
  readonly actionName: string;
  /** What was asked of the action, as the JSON values of the log. */
  readonly actionParams: unknown;
  /** Who asked for the action. */
  readonly principal: string;
  /** Trace context and the caller's headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** When the action began, by the clock of its process. */
  readonly startedDate: Date;
  readonly createdDate: Date;
  /** Which attempt this is, from 1. */
  readonly attempt: number;
}

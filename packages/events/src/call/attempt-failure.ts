import { type DeliverableEvent, FrameworkException } from '@framework/core';
import { errorText } from './error-text.js';

/** A call of a handler that did not succeed. */
export interface AttemptFailure {
  /** The handler's durable name. */
  readonly handler: string;
  /** The event that it was called with; the first one of a batch. */
  readonly event: DeliverableEvent;
  /** How many events it was called with: 1 unless it is a batch. */
  readonly eventCount: number;
  /** Which attempt it was, from 1. */
  readonly attempt: number;
  /** What it threw. */
  readonly error: unknown;
  /** Whether it counts as an attempt: not when storage, or another shard, could not serve, nor where the handler waits. */
  readonly counted: boolean;
  /** Whether it is tried again by itself; false: the event is a dead letter now. */
  readonly willRetry: boolean;
  /** After how long, in milliseconds, at the earliest; `undefined` for a dead letter. */
  readonly retryAfterMs: number | undefined;
}

/** Takes every call of a handler that did not succeed. */
export type AttemptFailureHook = (failure: AttemptFailure) => void;

/** Writes the failure to standard error, in one line: the default when no hook is given. */
export function logAttemptFailure({ handler, event, eventCount, ...failure }: AttemptFailure): void {
  const { attempt, error, counted, retryAfterMs } = failure;
  const events = eventCount === 1 ? event.id : `${event.id} and ${eventCount - 1} more`;
  const next =
    retryAfterMs === undefined
      ? 'it is a dead letter now, and later events of the model wait behind it until you replay or skip it with DeliveryOperator'
      : `it is retried after ${Math.ceil(retryAfterMs)} ms${untilConfigured(error)}`;
  const made = counted ? `attempt ${attempt} failed` : `attempt ${attempt} could not be made`;
  const reason = errorText(error).replaceAll(/\s+/g, ' ');
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(
    `Handler ${handler}, ${event.type} ${events} of ${event.modelName} ${event.modelId}: ${made}, ${next}: ${reason}`,
  );
}

/** What the retries wait for, where somebody has to do something. */
function untilConfigured(error: unknown): string {
  if (FrameworkException.find(error)?.code !== 'unknown-shard') return '';
  return ', and waits until the shard is in the configuration of this process, or a process that has it takes over';
}

import type { EventSourceState } from '@framework/core/adapter';
import { RetryLaterError } from '@framework/events';

/** How the last call of a relay's broker ended, in this process. */
export interface RelayState {
  /** `waiting`: the broker took nothing, and the events are published again. `idle`: nothing was published yet. */
  readonly kind: 'idle' | 'publishing' | 'waiting';
  /** The last error, and when it happened; `undefined` when there was none. */
  readonly lastError: RelayError | undefined;
  /** How the relay's source is doing, for each database; empty when the log is polled. */
  readonly sources: readonly EventSourceState[];
}

/** What has kept a relay from publishing. */
export interface RelayError {
  /**
   * `broker-unavailable`: the broker, or a target, did not confirm anything. `message-failed`: a message was not taken although others for its
   * target were, and is tried again. `message-refused`: a message can never be published as it is.
   */
  readonly code: 'broker-unavailable' | 'message-failed' | 'message-refused';
  /** For logs: it may contain addresses, or what a webhook has quoted of a request. */
  readonly text: string;
  readonly date: Date;
}

/** A message that was not taken although others for its target were; the attempt counts. */
export class MessageFailedError extends Error {
  override readonly name = 'MessageFailedError';
}

/** A message that was not taken although others for its target were, because the broker asks for time; no attempt counts. */
export class MessageWaitsError extends RetryLaterError {}

/** A message that waits for its target; no attempt counts. */
export class TargetWaitsError extends RetryLaterError {
  constructor(
    name: string,
    { afterMs, reason }: { readonly afterMs: number | undefined; readonly reason: string },
  ) {
    super({
      afterMs,
      message: `The broker of relay ${name} takes nothing for the message's target now: ${reason}`,
    });
  }
}

/** How a relay reports what was thrown for an event. */
export function codeOf(error: unknown): RelayError['code'] {
  if (error instanceof TargetWaitsError) return 'broker-unavailable';
  const isFailed = error instanceof MessageFailedError || error instanceof MessageWaitsError;
  return isFailed ? 'message-failed' : 'message-refused';
}

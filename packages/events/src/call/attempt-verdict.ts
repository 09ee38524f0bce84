import { FrameworkException } from '@framework/core';

/**
 * What a failed call means for its event.
 *
 * `counts`: the call failed by itself, which is an attempt. `outage`: storage or another shard could not serve, so that the
 * same call may succeed later: no attempt, however long it takes. `final`: the error says that doing the same again cannot
 * succeed.
 */
export type AttemptVerdict = 'counts' | 'outage' | 'final';

/** Judges what a call of a handler threw by the framework's error in it, which may be wrapped as a cause; never throws. */
export function attemptVerdict(thrown: unknown): AttemptVerdict {
  try {
    const known = FrameworkException.find(thrown);
    // The handler itself took too long, whatever it waited for.
    if (known === undefined || known.code === 'handler-timeout') return 'counts';
    // A process that knows more shards takes the event over, or this one has the shard after its next deployment.
    if (known.retryable || known.code === 'unknown-shard') return 'outage';
    return 'final';
  } catch {
    // A proxy around an error, which refuses to be read.
    return 'counts';
  }
}

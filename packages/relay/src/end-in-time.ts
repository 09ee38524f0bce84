import { type Clock, FrameworkError } from '@framework/core';

/** How long work may take after the end of its time to return what it knows. */
export const lastWordsMs = 1_000;

/** Whether a call has ended because its events belong to another process now, or delivery stops: that says nothing of the broker. */
export function isGivenUp({ aborted, reason }: AbortSignal): boolean {
  return aborted && FrameworkError.find(reason)?.code !== 'handler-timeout';
}

/**
 * Aborts work when its time is over, or when a handler's signal is aborted, and returns its result if that comes within {@link lastWordsMs}.
 *
 * Delivery ignores what a handler returns after its timeout, and so what a broker has confirmed: the time must be over before.
 *
 * @param options.timeoutMs how long the work may take, in milliseconds
 * @returns the result, and whether the work had been aborted by then
 * @throws the reason of the signal, or an Error that names the time, when the work returns nothing by then
 */
export async function endInTime<Result>(
  {
    clock,
    timeoutMs,
    signal,
  }: { readonly clock: Clock; readonly timeoutMs: number; readonly signal: AbortSignal },
  work: (ended: AbortSignal) => Promise<Result>,
): Promise<{ readonly result: Result; readonly isEnded: boolean }> {
  signal.throwIfAborted();
  // AbortSignal.any would cost as much as everything else in a call with a single message.
  const ended = new AbortController();
  const { promise: givenUp, reject: giveUp } = Promise.withResolvers<never>();
  let cancel = clock.after(timeoutMs, () =>
    end(new Error(`There was no answer within ${Math.round(timeoutMs)} ms`)),
  );
  const end = (reason: unknown): void => {
    if (ended.signal.aborted) return;
    cancel();
    cancel = clock.after(lastWordsMs, () => giveUp(reason));
    ended.abort(reason);
  };
  const onAbort = (): void => (isGivenUp(signal) ? end(signal.reason) : giveUp(signal.reason));
  signal.addEventListener('abort', onAbort);
  try {
    const result = await Promise.race([work(ended.signal), givenUp]);
    return { result, isEnded: ended.signal.aborted };
  } finally {
    signal.removeEventListener('abort', onAbort);
    cancel();
  }
}

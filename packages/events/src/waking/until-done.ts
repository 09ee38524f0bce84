import { type WorkerContext, storeBackoff } from '../worker-context.js';

/**
 * Does what the database refuses for now again, later each time, until it is done.
 *
 * @returns what the work gave; `undefined` when the signal was aborted before it succeeded
 */
export async function untilDone<T>(
  context: WorkerContext,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T | undefined> {
  const backoff = storeBackoff(context);
  while (!signal.aborted) {
    try {
      return await work();
    } catch (error) {
      context.onError(error);
      await backoff.failed(signal);
    }
  }
  return undefined;
}

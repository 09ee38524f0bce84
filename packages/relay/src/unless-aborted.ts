/**
 * Waits for work, but no longer than until the signal is aborted: a broker that is silent must not keep the caller waiting.
 *
 * @param graceMs how much longer it waits for work that began before, in milliseconds. Default 0
 * @throws the signal's reason once it is aborted
 */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal, graceMs = 0): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  let timer: NodeJS.Timeout | undefined;
  const onAbort = (): void => {
    if (graceMs === 0) aborted.reject(signal.reason);
    else timer = setTimeout(() => aborted.reject(signal.reason), graceMs);
  };
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort);
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

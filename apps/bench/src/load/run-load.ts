import { setTimeout as pause } from 'node:timers/promises';

/** The result of clients that each sent the next call when the previous one had ended. */
export interface Load {
  readonly count: number;
  readonly perSecond: number;
  /** How long each call took. */
  readonly latenciesMs: readonly number[];
  /** CPU time of this process, in all its threads, per call. */
  readonly cpuMsPerCall: number;
}

/**
 * Calls again and again, with one loop per client, and lets every call end.
 *
 * @param call gets the number of its client, from 0
 * @param options.perSecondMax how many calls all clients begin in a second at most, evenly. Default: no limit
 * @throws the first error of a call, after all loops have ended
 */
export async function runLoad(
  call: (client: number) => Promise<void>,
  {
    clientCount,
    durationMs,
    perSecondMax = Infinity,
  }: { readonly clientCount: number; readonly durationMs: number; readonly perSecondMax?: number },
): Promise<Load> {
  const latenciesMs: number[] = [];
  const cpuBefore = process.cpuUsage();
  const startedAtMs = performance.now();
  const endsAtMs = startedAtMs + durationMs;
  const loops = await Promise.allSettled(Array.from({ length: clientCount }, (_, client) => loop(client)));
  const tookMs = performance.now() - startedAtMs;
  const { user, system } = process.cpuUsage(cpuBefore);
  for (const outcome of loops) if (outcome.status === 'rejected') throw outcome.reason;
  const count = latenciesMs.length;
  return {
    count,
    perSecond: (count / tookMs) * 1_000,
    latenciesMs,
    cpuMsPerCall: (user + system) / 1_000 / count,
  };

  async function loop(client: number): Promise<void> {
    let atMs = performance.now();
    for (let number = client; atMs < endsAtMs; number += clientCount) {
      const dueMs = startedAtMs + (number / perSecondMax) * 1_000;
      if (dueMs > atMs) {
        await pause(dueMs - atMs);
        atMs = performance.now();
      }
      await call(client);
      const endedAtMs = performance.now();
      latenciesMs.push(endedAtMs - atMs);
      atMs = endedAtMs;
    }
  }
}

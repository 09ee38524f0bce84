import { setTimeout as delay } from 'node:timers/promises';

/** Deposits at a rate, by clients of which each has wallets of its own and waits for each answer. */
export interface PacedDeposits {
  /** The wallets in turn; those of a client are its own if their number is a multiple of {@link clientCount}. */
  readonly walletIds: readonly string[];
  readonly clientCount: number;
  readonly perSecond: number;
  readonly deposit: (walletId: string) => Promise<void>;
  /** Ends the deposits. */
  readonly until: AbortSignal;
  /** Ends them after so many. Default: unlimited. */
  readonly countMax?: number;
}

/**
 * Makes the deposits; fewer if the answers take too long for the rate.
 *
 * @throws the first error of a deposit
 */
export async function makeDeposits({
  walletIds,
  clientCount,
  perSecond,
  deposit,
  until,
  countMax = Infinity,
}: PacedDeposits): Promise<void> {
  const startedMs = performance.now();
  let begunCount = 0;
  await Promise.all(
    Array.from({ length: clientCount }, async (_unused, client) => {
      for (let n = client; begunCount < countMax; n += clientCount) {
        const dueMs = startedMs + (begunCount++ * 1_000) / perSecond;
        await delay(Math.max(0, dueMs - performance.now()), undefined, { signal: until }).catch(
          () => undefined,
        );
        if (until.aborted) return;
        await deposit(walletIds[n % walletIds.length] ?? '');
      }
    }),
  );
}

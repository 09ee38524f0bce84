import type { BenchContext } from '../benchmark/benchmark.js';
import { measureContenders, median, quantile } from '../benchmark/measure-contenders.js';
import { type Load, runLoad } from '../load/run-load.js';
import type { DepositContender } from './deposit-contender.js';
import { anyOf, openTargets } from './deposit-environment.js';
import { verifyDeposits } from './verify-deposits.js';

/** How long a measurement of the full run takes. */
export const fullDurationMs = 3_000;
/**
 * How long the load runs before the measurement, as a share of its duration, so that connections are open and statements prepared.
 */
const leadInShare = 0.1;

/** How contenders are measured. */
export interface DepositLoad {
  readonly clientCount: number;
  /** How many wallets the clients deposit to, chosen at random each time. */
  readonly walletCount: number;
}

/** The medians of one contender over the rounds. */
export interface LoadMedians {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuMs: number;
}

/**
 * Measures the contenders in turn, with new wallets for each measurement, and closes them.
 *
 * @throws Error when a call fails, or the rows do not exactly match the answers
 */
export async function measureDeposits<Name extends string>(
  contenders: readonly DepositContender<Name>[],
  load: DepositLoad,
  context: BenchContext,
): Promise<Readonly<Record<Name, LoadMedians>>> {
  const loads = new Map<Name, Load[]>();
  const measured = await measureContenders(
    contenders.map((contender) => {
      const own: Load[] = [];
      loads.set(contender.name, own);
      return {
        name: contender.name,
        measure: async () => {
          const last = await measureOnce(contender, load, fullDurationMs * context.scale);
          own.push(last);
          return last.perSecond;
        },
      };
    }),
    context,
  );
  for (const contender of contenders) await contender.close();
  const medians = [...loads].map(([name, [_warmUp, ...counted]]) => {
    const over = (value: (one: Load) => number): number => median(counted.map(value));
    return [
      name,
      {
        perSecond: measured[name],
        p50Ms: over(({ latenciesMs }) => quantile(latenciesMs, 0.5)),
        p99Ms: over(({ latenciesMs }) => quantile(latenciesMs, 0.99)),
        cpuMs: over(({ cpuMsPerCall }) => cpuMsPerCall),
      },
    ];
  });
  return Object.fromEntries(medians) as Record<Name, LoadMedians>;
}

async function measureOnce(
  { environment, deposit }: DepositContender,
  { clientCount, walletCount }: DepositLoad,
  durationMs: number,
): Promise<Load> {
  const targets = await openTargets(environment, walletCount);
  const call = (): Promise<void> => deposit(anyOf(targets));
  const leadIn = await runLoad(call, { clientCount, durationMs: durationMs * leadInShare });
  const load = await runLoad(call, { clientCount, durationMs });
  await verifyDeposits(environment, targets, leadIn.count + load.count);
  return load;
}

/** The value of each contender, for the table. */
export function valuesOf<Name extends string>(
  measured: Readonly<Record<Name, LoadMedians>>,
  value: keyof LoadMedians,
): Readonly<Record<string, number>> {
  return Object.fromEntries(
    Object.entries<LoadMedians>(measured).map(([name, medians]) => [name, medians[value]]),
  );
}

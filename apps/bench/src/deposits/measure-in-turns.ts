import type { BenchContext } from '../benchmark/benchmark.js';
import { type Load, runLoad } from '../load/run-load.js';
import type { DepositContender } from './deposit-contender.js';
import { type DepositTarget, anyOf, openTargets } from './deposit-environment.js';
import type { DepositLoad } from './measure-deposits.js';
import { verifyDeposits } from './verify-deposits.js';

/** How long a turn takes: so short that what else happens on the machine lasts longer than a round. */
const turnMs = 100;
/** How many rounds of turns make one round of the full run, in which each contender is measured for 20 s. */
const turnsPerRound = 200;
/** The share of the rounds that are not counted, in which code is compiled and connections are opened. */
const leadInShare = 0.1;

/** A contender in comparison with the first one. */
export interface Turns {
  readonly perSecond: number;
  /** CPU time of this process, in all its threads, per deposit. */
  readonly cpuMs: number;
  /** The geometric mean, over all rounds, of how many deposits it made for each of those of the first contender. */
  readonly ratio: number;
  /** The standard error of that mean, as a share of it. */
  readonly ratioError: number;
}

/** What is known of one contender. */
interface Taking<Name extends string> {
  readonly contender: DepositContender<Name>;
  readonly targets: readonly DepositTarget[];
  readonly turns: Load[];
}

/**
 * Compares contenders that differ by a few hundredths, in many short turns in random order, and closes them.
 *
 * @param contenders the first one is what the others are compared with
 * @throws Error when a call fails, or the rows do not exactly match the answers
 */
export async function measureInTurns<Name extends string>(
  contenders: readonly DepositContender<Name>[],
  { clientCount, walletCount }: DepositLoad,
  { rounds, scale, say }: BenchContext,
): Promise<Readonly<Record<Name, Turns>>> {
  const takings: Taking<Name>[] = [];
  for (const contender of contenders)
    takings.push({ contender, targets: await openTargets(contender.environment, walletCount), turns: [] });
  const counted = Math.ceil(rounds * turnsPerRound * scale);
  const leadIn = Math.ceil(counted * leadInShare);
  for (let round = 0; round < leadIn + counted; round++)
    for (const { contender, targets, turns } of shuffled(takings))
      turns.push(await runLoad(() => contender.deposit(anyOf(targets)), { clientCount, durationMs: turnMs }));
  for (const { contender, targets, turns } of takings) {
    await verifyDeposits(contender.environment, targets, sumOf(turns.map(({ count }) => count)));
    await contender.close();
    turns.splice(0, leadIn);
  }
  const compared = takings.map(({ contender: { name }, turns }) => {
    const found = compare(turns, takings[0]?.turns ?? []);
    say(`  ${name}: ${found.ratio.toFixed(4)} ± ${found.ratioError.toFixed(4)} in ${counted} rounds`);
    return [name, found];
  });
  return Object.fromEntries(compared) as Record<Name, Turns>;
}

function compare(turns: readonly Load[], others: readonly Load[]): Turns {
  const logarithms = turns.map(({ perSecond }, index) =>
    Math.log(perSecond / (others[index]?.perSecond ?? Number.NaN)),
  );
  const mean = sumOf(logarithms) / logarithms.length;
  const variance = sumOf(logarithms.map((one) => (one - mean) ** 2)) / (logarithms.length - 1);
  const count = sumOf(turns.map((turn) => turn.count));
  return {
    perSecond: sumOf(turns.map(({ perSecond }) => perSecond)) / turns.length,
    cpuMs: sumOf(turns.map((turn) => turn.count * turn.cpuMsPerCall)) / count,
    ratio: Math.exp(mean),
    ratioError: Math.sqrt(variance / logarithms.length),
  };
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, one) => sum + one, 0);
}

function shuffled<T>(all: readonly T[]): readonly T[] {
  return all
    .map((one) => ({ one, at: Math.random() }))
    .toSorted((one, other) => one.at - other.at)
    .map(({ one }) => one);
}

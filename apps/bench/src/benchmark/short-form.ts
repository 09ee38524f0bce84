import type { BenchContext, Benchmark } from './benchmark.js';
import type { Figure } from './figure.js';
import { type Ratios, isRatio } from './recorded-ratios.js';

/** Ratios of unchanged code differ that much between machines whose processors or disks are of another kind. */
const toleratedShare = 0.7;
/** How often a benchmark is run at most: what else the machine does passes, what the code does comes again. */
const attemptsMax = 3;

/** A ratio beside the one that was recorded. */
export interface Comparison {
  readonly title: string;
  readonly value: number;
  /** `undefined` when it was never recorded. */
  readonly recorded: number | undefined;
  /** Whether it is no worse than is tolerated: at most 30 % lower where it must be large, 43 % higher where it must be small. */
  readonly isGood: boolean;
}

/** Runs benchmarks, again where a ratio has fallen, and compares their ratios with the recorded ones. */
export async function compareWithRecorded(
  benchmarks: readonly Benchmark[],
  context: BenchContext,
  recorded: Ratios,
): Promise<readonly Comparison[]> {
  const comparisons: Comparison[] = [];
  for (const benchmark of benchmarks) comparisons.push(...(await compareOne(benchmark, context, recorded)));
  return comparisons;
}

async function compareOne(
  benchmark: Benchmark,
  context: BenchContext,
  recorded: Ratios,
): Promise<readonly Comparison[]> {
  const best = new Map<string, Comparison>();
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    context.say(
      attempt === 1 ? `${benchmark.name} …` : `${benchmark.name} again, because a ratio has fallen …`,
    );
    for (const figure of (await benchmark.run(context)).filter(isRatio)) {
      if (best.get(figure.title)?.isGood !== true) best.set(figure.title, comparisonOf(figure, recorded));
    }
    if ([...best.values()].every(({ isGood, recorded: known }) => isGood || known === undefined)) break;
  }
  return [...best.values()];
}

/** Compares one ratio; one that was never recorded is not good. */
export function comparisonOf({ title, value, atLeast }: Figure, ratios: Ratios): Comparison {
  const recorded = ratios[title];
  if (recorded === undefined) return { title, value, recorded, isGood: false };
  const isGood =
    atLeast === undefined ? value <= recorded / toleratedShare : value >= recorded * toleratedShare;
  return { title, value, recorded, isGood };
}

/** Says how a comparison ended, in one line. */
export function lineOf({ title, value, recorded, isGood }: Comparison): string {
  const known = recorded === undefined ? 'never recorded; do it by --record' : `recorded ${recorded}`;
  return `${isGood ? '✓' : '✗'} ${title}: ${value.toPrecision(4)}, ${known}`;
}

import { type BenchContext, type Benchmark, type Figure, isReached } from './benchmark.js';
import { type Ratios, isRatio } from './recorded-ratios.js';

/** Ratios of unchanged code differ by up to this much between kinds of machines. */
const toleratedShare = 0.7;
/** The maximum number of runs of a benchmark: disturbances of the machine pass, but a slowdown in the code remains. */
const attemptsMax = 3;

/** A ratio, and the recorded one. */
export interface Comparison {
  readonly title: string;
  readonly value: number;
  /** `undefined` when it was never recorded. */
  readonly recorded: number | undefined;
  /**
   * Whether it is within its bound, or within tolerance: at most 30 % lower if it should be large, at most 43 % higher if it should
   * be small.
   */
  readonly isGood: boolean;
}

/** Runs benchmarks, repeats those whose ratios have become worse, and compares their ratios with the recorded ones. */
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
      attempt === 1 ? `${benchmark.name} …` : `${benchmark.name} again, because a ratio has become worse …`,
    );
    for (const figure of (await benchmark.run(context)).filter(isRatio)) {
      if (best.get(figure.title)?.isGood !== true) best.set(figure.title, comparisonOf(figure, recorded));
    }
    if ([...best.values()].every(({ isGood, recorded: known }) => isGood || known === undefined)) break;
  }
  return [...best.values()];
}

/** Compares one ratio; one that was never recorded fails. */
export function comparisonOf(figure: Figure, ratios: Ratios): Comparison {
  const { title, value, atLeast } = figure;
  const recorded = ratios[title];
  if (recorded === undefined) return { title, value, recorded, isGood: false };
  const isTolerated =
    atLeast === undefined ? value <= recorded / toleratedShare : value >= recorded * toleratedShare;
  return { title, value, recorded, isGood: isTolerated || isReached(figure) };
}

/** The result of a comparison, in one line. */
export function lineOf({ title, value, recorded, isGood }: Comparison): string {
  const known = recorded === undefined ? 'never recorded; record it with --record' : `recorded ${recorded}`;
  return `${isGood ? '✓' : '✗'} ${title}: ${value.toPrecision(4)}, ${known}`;
}

import type { BenchContext } from './benchmark.js';

/** One of several ways to do the same work. */
export interface Contender {
  readonly name: string;
  /** Does the work once and verifies it; returns the figure to compare. */
  readonly measure: () => Promise<number>;
}

/**
 * Measures all contenders in turn, round by round, so that other work on the machine affects all of them alike.
 *
 * A first round warms up and is not counted; every other round goes through the contenders in the opposite order.
 *
 * @returns the median of each contender, by its name
 */
export async function measureContenders<Name extends string>(
  contenders: readonly (Contender & { readonly name: Name })[],
  { rounds, say }: Pick<BenchContext, 'rounds' | 'say'>,
): Promise<Readonly<Record<Name, number>>> {
  const values = new Map<Name, number[]>(contenders.map(({ name }) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const { name, measure } of round % 2 === 0 ? contenders : contenders.toReversed()) {
      const value = await measure();
      say(`  ${round === 0 ? 'warm-up' : `round ${round}`}, ${name}: ${value.toPrecision(5)}`);
      if (round > 0) values.get(name)?.push(value);
    }
  }
  return Object.fromEntries([...values].map(([name, all]) => [name, median(all)])) as Record<Name, number>;
}

/** The middle one of some numbers; for an even count, the mean of the middle two. */
export function median(values: readonly number[]): number {
  return (quantile(values, 0.5, 'lower') + quantile(values, 0.5, 'upper')) / 2;
}

/** The number that the given share of some numbers does not exceed; `NaN` if there are none. */
export function quantile(
  values: readonly number[],
  share: number,
  bound: 'lower' | 'upper' = 'upper',
): number {
  const sorted = values.toSorted((one, other) => one - other);
  const place = (sorted.length - 1) * share;
  return sorted[bound === 'lower' ? Math.floor(place) : Math.ceil(place)] ?? Number.NaN;
}

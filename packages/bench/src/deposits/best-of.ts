import type { LoadMedians } from './measure-deposits.js';

/** The figures of the best hand-written statement: the faster of its two ways to use connections. */
export function bestOf(
  measured: Readonly<Record<'one statement' | 'one statement, pipelined', LoadMedians>>,
): LoadMedians {
  const { 'one statement': pooled, 'one statement, pipelined': pipelined } = measured;
  return pooled.perSecond >= pipelined.perSecond ? pooled : pipelined;
}

/** One value of each side, for the table. */
export function valuesOf<Name extends string>(
  measured: Readonly<Record<Name, LoadMedians>>,
  value: keyof LoadMedians,
): Readonly<Record<string, number>> {
  return Object.fromEntries(
    Object.entries<LoadMedians>(measured).map(([name, medians]) => [name, medians[value]]),
  );
}

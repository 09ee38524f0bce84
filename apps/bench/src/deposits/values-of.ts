import type { LoadMedians } from './measure-deposits.js';

/** The value of each contender, for the table. */
export function valuesOf<Name extends string>(
  measured: Readonly<Record<Name, LoadMedians>>,
  value: keyof LoadMedians,
): Readonly<Record<string, number>> {
  return Object.fromEntries(
    Object.entries<LoadMedians>(measured).map(([name, medians]) => [name, medians[value]]),
  );
}

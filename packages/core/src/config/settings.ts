import { timerMaxMs } from '../clock.js';
import { ConfigurationError, type ConfigurationIssue } from '../errors/configuration-errors.js';

/** The whole numbers that a setting may be. */
export interface NumberRange {
  readonly min: number;
  readonly max: number;
}

/** The ranges of those settings that are numbers. */
export type RangesOf<T> = { readonly [K in keyof T as T[K] extends number ? K : never]: NumberRange };

/** From 1 to what a number holds exactly. */
export const fromOne: NumberRange = { min: 1, max: Number.MAX_SAFE_INTEGER };
/** How long something may be waited for, from 1 ms. */
export const waitRange: NumberRange = { min: 1, max: timerMaxMs };

/**
 * Lays settings over their defaults; `undefined` counts as not set, so that no limit is lost by it.
 *
 * @param path where the settings stand, such as `retry`
 * @throws ConfigurationError `invalid-configuration` with the path of each one that is unknown or out of its range
 */
export function settingsOf<T extends object>(
  path: string,
  defaults: T,
  ranges: RangesOf<T>,
  given: Partial<T> | undefined,
): T {
  if (given === undefined) return defaults;
  const set = Object.entries(given).filter(([, value]) => value !== undefined);
  const faults = set.flatMap(([name, value]) =>
    faultOf(`${path}.${name}`, name in defaults, rangeOf(ranges, name), value),
  );
  if (faults.length > 0) throw new ConfigurationError(faults);
  return { ...defaults, ...Object.fromEntries(set) };
}

function rangeOf(ranges: object, name: string): NumberRange | undefined {
  return (ranges as Readonly<Record<string, NumberRange | undefined>>)[name];
}

function faultOf(
  path: string,
  isKnown: boolean,
  range: NumberRange | undefined,
  value: unknown,
): readonly ConfigurationIssue[] {
  if (!isKnown) return [{ path, message: 'is not a known setting' }];
  if (range === undefined) {
    return typeof value === 'function' ? [] : [{ path, message: 'is not a function' }];
  }
  const { min, max } = range;
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return [];
  return [{ path, message: `is ${shown(value)}: set a whole number from ${min} to ${max}` }];
}

function shown(value: unknown): string {
  return typeof value === 'number' ? String(value) : `a ${typeof value}`;
}

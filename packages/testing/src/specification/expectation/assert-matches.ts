import { AssertionError } from 'node:assert';
import { isDeepStrictEqual } from 'node:util';
import { type Matched, matched } from './matched.js';
import { shown } from './shown.js';

/**
 * Compares what is with what is expected, by everything that the expectation does not leave open.
 *
 * @param what names it in the error, such as `events`
 * @throws AssertionError with the difference, as every test runner shows it
 */
export function assertMatches(what: string, actual: unknown, expected: unknown): void {
  const compared = matched(actual, expected);
  if (isDeepStrictEqual(compared.actual, compared.expected)) return;
  const { message } = new AssertionError({ ...readable(compared), operator: 'deepStrictEqual' });
  throw new AssertionError({
    ...readable(compared),
    message: `The ${what} differ. ${message}`,
    operator: 'specification',
    stackStartFn: assertMatches,
  });
}

/** Shortened, unless the difference is lost by that. */
function readable({ actual, expected }: Matched): Matched {
  const short: Matched = { actual: shown(actual), expected: shown(expected) };
  return isDeepStrictEqual(short.actual, short.expected) ? { actual, expected } : short;
}

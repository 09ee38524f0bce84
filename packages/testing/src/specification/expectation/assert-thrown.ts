import { AssertionError } from 'node:assert';
import { FrameworkException } from '@framework/core';
import { shown } from './shown.js';

/** An error by its `code`, or by its class. */
export type ExpectedError = string | (abstract new (...args: never[]) => Error);

/** How something ended. */
export type Ending = { readonly result: unknown } | { readonly error: unknown };

/**
 * Compares what was thrown with what is expected.
 *
 * @throws AssertionError with what was thrown as its cause, or with the result when nothing was
 */
export function assertThrown(what: string, ending: Ending, expected: ExpectedError): void {
  const name = typeof expected === 'string' ? expected : expected.name;
  if ('result' in ending) {
    throw new AssertionError({
      message: `${what} does not throw ${name}.`,
      actual: shown(ending.result),
      expected: name,
      operator: 'throws',
      stackStartFn: assertThrown,
    });
  }
  const { error } = ending;
  if (isExpected(error, expected)) return;
  const failure = new AssertionError({
    message: `${what} throws ${codeOf(error)} and not ${name}: ${String(error)}`,
    actual: codeOf(error),
    expected: name,
    operator: 'throws',
    stackStartFn: assertThrown,
  });
  throw Object.assign(failure, { cause: error });
}

function isExpected(error: unknown, expected: ExpectedError): boolean {
  return typeof expected === 'string' ? codeOf(error) === expected : error instanceof expected;
}

/** The `code` of an error, or of the framework's error that it wraps; else its name. */
function codeOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'code' in error) return String(error.code);
  return FrameworkException.find(error)?.code ?? (error instanceof Error ? error.name : typeof error);
}

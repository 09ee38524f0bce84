import { type ErrorCode, FrameworkError } from '@framework/core';
import { openCounters } from '../counter/open-counters.ts';

export const { databases, executor, ready } = openCounters(process.env['DATABASE_URL']);

const statuses: Partial<Record<ErrorCode, number>> = {
  'entity-not-found': 404,
  'invalid-id': 400,
  'invalid-params': 400,
};

/** What a client is told about an error: its code, and the HTTP status for it. */
export function problemOf(error: unknown): { readonly status: number; readonly code: string } {
  const known = FrameworkError.find(error);
  if (known === undefined) return { status: 500, code: 'internal' };
  return { status: statuses[known.code] ?? (known.retryable ? 503 : 500), code: known.code };
}

import type * as z from 'zod';

import type { RequestFault } from '../problem/problem-error.js';
import { JsonNumber, hasJsonNumber } from './exact-json.js';
import { InvalidRequestError } from './invalid-request-error.js';

const faultsMax = 32;

/** The part of a request that is parsed, and how positions in it are written. */
type RequestPart = 'path' | 'query' | 'body';

/**
 * Parses one part of a request with a schema.
 *
 * @throws InvalidRequestError `bad-request` with up to 32 faults
 */
export function parseShape<Schema extends z.ZodType>(
  part: RequestPart,
  schema: Schema,
  value: unknown,
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) {
    if (hasJsonNumber(value)) refuseNumbers(part, value, parsed.data);
    return parsed.data;
  }
  const faults = parsed.error.issues.flatMap((issue) => faultsOf(part, issue, value)).slice(0, faultsMax);
  const first = faults[0];
  throw new InvalidRequestError(
    'bad-request',
    first === undefined ? 'The request is malformed' : `${first.pointer} ${first.message}`,
    {
      faults,
    },
  );
}

/** Refuses what a schema has let through without a field that reads it: a handler would get an object in place of the number. */
function refuseNumbers(part: RequestPart, sent: unknown, parsed: unknown): void {
  const paths = [...pathsOfNumbers(sent, []), ...pathsOfNumbers(parsed, [])];
  const path = paths.find((each) => valueAt(parsed, each) !== undefined);
  if (path === undefined) return;
  const fault = { pointer: pointer(part, path), message: 'is a number with too many digits' };
  throw new InvalidRequestError('bad-request', `${fault.pointer} ${fault.message}`, { faults: [fault] });
}

function pathsOfNumbers(value: unknown, path: readonly PropertyKey[]): readonly (readonly PropertyKey[])[] {
  if (value instanceof JsonNumber) return value.isRead ? [] : [path];
  if (typeof value !== 'object' || value === null) return [];
  // A schema may have put fields into one of these, inside of which there are no paths.
  if (value instanceof Map || value instanceof Set)
    return [...value].flat().some((inner) => pathsOfNumbers(inner, []).length > 0) ? [path] : [];
  return Object.entries(value).flatMap(([key, inner]) => pathsOfNumbers(inner, [...path, key]));
}

function faultsOf(part: RequestPart, issue: z.core.$ZodIssue, value: unknown): readonly RequestFault[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      pointer: pointer(part, [...issue.path, key]),
      message: 'is not a known field',
    }));
  }
  const missing = valueAt(value, issue.path) === undefined;
  return [{ pointer: pointer(part, issue.path), message: missing ? 'is missing' : issue.message }];
}

/** The position of a fault: in the body, a JSON pointer as URI fragment (RFC 6901, section 6), elsewhere the parameter's name. */
function pointer(part: RequestPart, path: readonly PropertyKey[]): string {
  const tokens = path.map((key) =>
    encodeURIComponent(String(key).toWellFormed().replaceAll('~', '~0').replaceAll('/', '~1')),
  );
  return [part === 'body' ? '#' : part, ...tokens].join('/');
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (inner, key) =>
      typeof inner === 'object' && inner !== null ? (inner as Record<PropertyKey, unknown>)[key] : undefined,
    value,
  );
}

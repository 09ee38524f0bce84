import * as z from 'zod';

import { UnstorableValueError } from '../errors/value-errors.js';
import { Id } from '../id/id.js';
import { ShardIdentifier } from '../sharding/shard-identifier.js';

const depthMax = 64;

/** Values that are accepted although they do not read back as the same type. */
interface Leniency {
  /** Accepts ids, written as text, and shards, written as group and member. */
  readonly idsAndShards?: boolean;
}

/**
 * Encodes a value as JSON that reads back as the same value. An `undefined` field counts as absent, and `-0` as 0.
 *
 * @param path names the value in errors, such as `WalletCreatedEvent.amount`
 * @throws UnstorableValueError `unstorable-value` for anything that JSON or jsonb would change or lose: bigints, dates,
 * maps, sets and other class instances, functions, symbols, non-finite numbers, `undefined` in lists, `\u0000`, lone
 * surrogates, nesting beyond 64 levels
 */
export function exactJson(value: unknown, path: string, lenient: Leniency = {}): string {
  check(value, path, 0, lenient);
  return JSON.stringify(value);
}

function check(value: unknown, path: string, depth: number, lenient: Leniency): void {
  if (depth > depthMax) throw new UnstorableValueError(path, `it is nested deeper than ${depthMax} levels`);
  switch (typeof value) {
    case 'string':
      return checkText(value, path);
    case 'number':
      if (!Number.isFinite(value)) throw new UnstorableValueError(path, `JSON cannot represent ${value}`);
      return;
    case 'boolean':
      return;
    case 'object':
      return checkObject(value, path, depth, lenient);
    default:
      throw new UnstorableValueError(path, `JSON cannot represent a ${typeof value}; use a codec`);
  }
}

/** Refuses text that PostgreSQL cannot store. */
export function checkText(value: string, path: string): void {
  if (value.includes('\u0000'))
    throw new UnstorableValueError(path, 'the database cannot store \\u0000 in text');
  if (!value.isWellFormed()) throw new UnstorableValueError(path, 'the text has half of a surrogate pair');
}

function checkObject(value: object | null, path: string, depth: number, lenient: Leniency): void {
  if (value === null) return;
  if (lenient.idsAndShards === true) {
    if (value instanceof Id) return checkText(value.value, path);
    if (value instanceof ShardIdentifier) return;
  }
  if (Array.isArray(value)) return checkList(value, path, depth, lenient);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw unknownClass(value, path);
  if (typeof (value as { readonly toJSON?: unknown }).toJSON === 'function')
    throw new UnstorableValueError(path, 'its toJSON would write something else');
  checkNoSymbols(value, path);
  for (const [key, field] of Object.entries(value)) {
    checkText(key, path);
    if (field !== undefined) check(field, `${path}.${key}`, depth + 1, lenient);
  }
}

function checkList(list: readonly unknown[], path: string, depth: number, lenient: Leniency): void {
  // `Array.prototype` is itself an array; the prototype of a subclass is not.
  if (!Array.isArray(Object.getPrototypeOf(list))) throw unknownClass(list, path);
  // By index, because forEach skips holes, which JSON turns into null.
  for (let index = 0; index < list.length; index++)
    check(list[index], `${path}[${index}]`, depth + 1, lenient);
  const more = Object.keys(list)[list.length];
  if (more !== undefined)
    throw new UnstorableValueError(`${path}.${more}`, 'JSON cannot represent a named field of a list');
  checkNoSymbols(list, path);
}

function checkNoSymbols(value: object, path: string): void {
  if (Object.getOwnPropertySymbols(value).length > 0)
    throw new UnstorableValueError(path, 'JSON cannot represent symbol keys');
}

function unknownClass(value: object, path: string): UnstorableValueError {
  const { constructor } = value as { readonly constructor?: { readonly name: string } };
  return new UnstorableValueError(
    path,
    `JSON cannot represent a ${constructor?.name ?? 'value of an unnamed class'}; use a codec`,
  );
}

/**
 * Encodes a value with a schema: the schema can decode the result.
 *
 * @param name names the value in errors, such as `WalletCreatedEvent`
 * @throws UnstorableValueError `unstorable-value` when the schema cannot encode at all, or the value contains itself
 */
export function encodeBySchema(
  schema: z.ZodType,
  value: unknown,
  name: string,
): z.ZodSafeParseResult<unknown> {
  try {
    return z.safeEncode(schema, value);
  } catch (error) {
    throw whyNot(error, name);
  }
}

function whyNot(error: unknown, name: string): unknown {
  // Compared by name, because the schema may come from another copy of zod.
  if (error instanceof Error && error.name === 'ZodEncodeError') {
    const reason = 'its schema has a transform, which works in one direction only; use z.codec instead';
    return new UnstorableValueError(name, reason, { cause: error });
  }
  // The error of a recursive schema for a value that contains itself.
  if (error instanceof RangeError && error.message.includes('call stack')) {
    return new UnstorableValueError(name, 'it is nested too deeply, or contains itself', { cause: error });
  }
  if (error instanceof z.core.$ZodAsyncError) {
    const reason = 'its schema has an asynchronous check or codec; use synchronous ones';
    return new UnstorableValueError(name, reason, { cause: error });
  }
  return error;
}

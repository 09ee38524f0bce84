import * as z from 'zod';

import { UnstorableValueError } from '../errors/value-errors.js';
import { Id } from '../id/id.js';
import { ShardIdentifier } from '../sharding/shard-identifier.js';

const depthMax = 64;

/** What counts as exact although it does not read back as the same value. */
interface Leniency {
  /** Ids are written as their texts, shards as group and member. */
  readonly idsAndShards?: boolean;
}

/**
 * Writes a value as JSON that reads back as the same value; a field that is `undefined` counts as absent, `-0` as 0.
 *
 * @param path names the value in the error, such as `WalletCreatedEvent.amount`
 * @throws UnstorableValueError `unstorable-value` for what JSON or jsonb would change or lose: bigints, dates, maps,
 * sets and other class instances, functions, symbols, non-finite numbers, `undefined` in lists, `\u0000`, lone
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
      if (!Number.isFinite(value)) throw new UnstorableValueError(path, `JSON has no ${value}`);
      return;
    case 'boolean':
      return;
    case 'object':
      return checkObject(value, path, depth, lenient);
    default:
      throw new UnstorableValueError(path, `JSON has no ${typeof value}; write it by a codec`);
  }
}

/** Refuses text that PostgreSQL cannot hold. */
export function checkText(value: string, path: string): void {
  if (value.includes('\u0000'))
    throw new UnstorableValueError(path, 'the database cannot hold \\u0000 in text');
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
  // The prototype of all lists is a list; that of a class of lists is not.
  if (!Array.isArray(Object.getPrototypeOf(list))) throw unknownClass(list, path);
  // By index, because forEach passes over holes, which JSON turns into null.
  for (let index = 0; index < list.length; index++)
    check(list[index], `${path}[${index}]`, depth + 1, lenient);
  const more = Object.keys(list)[list.length];
  if (more !== undefined) throw new UnstorableValueError(`${path}.${more}`, 'JSON has no fields of lists');
  checkNoSymbols(list, path);
}

function checkNoSymbols(value: object, path: string): void {
  if (Object.getOwnPropertySymbols(value).length > 0)
    throw new UnstorableValueError(path, 'JSON has no keys that are symbols');
}

function unknownClass(value: object, path: string): UnstorableValueError {
  const { constructor } = value as { readonly constructor?: { readonly name: string } };
  return new UnstorableValueError(
    path,
    `JSON has no ${constructor?.name ?? 'such object'}; write it by a codec`,
  );
}

/**
 * Writes a value by a schema, backwards: what the schema reads is what this gives.
 *
 * @param name names the value in the error, such as `WalletCreatedEvent`
 * @throws UnstorableValueError `unstorable-value` when the schema cannot work backwards, whatever the
 * value is, or the value holds itself
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
  // By name, because the schema may be of another copy of zod.
  if (error instanceof Error && error.name === 'ZodEncodeError') {
    const reason = 'its schema has a transform, which works in one direction only; use z.codec instead';
    return new UnstorableValueError(name, reason, { cause: error });
  }
  // What a schema that names itself throws for a value that holds itself.
  if (error instanceof RangeError && error.message.includes('call stack')) {
    return new UnstorableValueError(name, 'it is nested too deeply, or holds itself', { cause: error });
  }
  if (error instanceof z.core.$ZodAsyncError) {
    const reason = 'its schema has an asynchronous check or codec; use synchronous ones';
    return new UnstorableValueError(name, reason, { cause: error });
  }
  return error;
}

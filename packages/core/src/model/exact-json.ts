import * as z from 'zod';

import { UnstorableValueError } from '../errors/value-errors.js';
import { Id } from '../id/id.js';
import { ShardIdentifier } from '../id/shard-identifier.js';

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
      throw new UnstorableValueError(
        path,
        `JSON cannot represent ${typeof value === 'undefined' ? '' : 'a '}${typeof value}; use ${typeof value === 'bigint' ? 'bigintCodec' : 'a codec'}`,
      );
  }
}

/** Refuses text that PostgreSQL cannot store. */
export function checkText(value: string, path: string): void {
  if (value.includes('\u0000'))
    throw new UnstorableValueError(path, 'the database cannot store \\u0000 in text');
  if (!value.isWellFormed())
    throw new UnstorableValueError(path, 'the text contains half of a surrogate pair');
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
    throw new UnstorableValueError(path, 'its toJSON would write another value; use a codec');
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
    throw new UnstorableValueError(`${path}.${more}`, 'JSON cannot represent a named property of a list');
  checkNoSymbols(list, path);
}

function checkNoSymbols(value: object, path: string): void {
  if (Object.getOwnPropertySymbols(value).length > 0)
    throw new UnstorableValueError(path, 'JSON cannot represent symbol keys');
}

function unknownClass(value: object, path: string): UnstorableValueError {
  const { constructor } = value as { readonly constructor?: { readonly name: string } };
  const codec = value instanceof Date ? 'instantCodec' : 'a codec';
  return new UnstorableValueError(
    path,
    `JSON cannot represent an instance of ${constructor?.name || 'an unnamed class'}; use ${codec}`,
  );
}

/** The schema of an instant, written as ISO 8601 text in UTC; for params of actions and payloads of events. */
export const instantCodec: z.ZodType<Date, string> = z.codec(z.iso.datetime(), z.date(), {
  decode: (text) => new Date(text),
  encode: (date) => date.toISOString(),
});

/** The schema of a bigint, written as its digits. */
export const bigintCodec: z.ZodType<bigint, string> = z.codec(z.string().regex(/^-?\d+$/), z.bigint(), {
  decode: (digits) => BigInt(digits),
  encode: (value) => String(value),
});

/**
 * The schema of an exact decimal, written as plain digits. The class must have a constructor that takes such digits, and a
 * `toFixed()` that writes them, like `Big` of big.js, `BigNumber` and `Decimal`.
 *
 * ```ts
 * const params = z.object({ amount: decimalCodec(Big) });
 * ```
 */
export function decimalCodec<D extends { toFixed(): string }>(
  decimalClass: new (digits: string) => D,
): z.ZodType<D, string> {
  return z.codec(z.string().regex(/^-?\d+(\.\d+)?$/), z.instanceof(decimalClass), {
    decode: (digits) => new decimalClass(digits),
    encode: (value) => value.toFixed(),
  });
}

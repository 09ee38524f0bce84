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

/**
 * Copies a value, so that a change to the original or to the copy does not affect the other: plain objects, lists, dates, maps,
 * sets and bytes, at every level.
 *
 * Instances of other classes are not copied. Ids, shards and decimals never change.
 */
export function copyOfValue<T>(value: T): T {
  return copyOf(value, new Map(), 0) as T;
}

/**
 * The objects that were already copied, with their copies: a value may contain one twice, and params may even be circular if no
 * schema checks them.
 */
type Copies = Map<object, object>;

/** Deeper values are not copied: the JSON of so deeply nested params is refused. */
const copyDepthMax = 1_000;

function copyOf(value: unknown, copies: Copies, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth > copyDepthMax) return value;
  const known = copies.get(value);
  if (known !== undefined) return known;
  const prototype = Object.getPrototypeOf(value) as object | null;
  if (Array.isArray(value)) return Array.isArray(prototype) ? copyOfList(value, copies, depth) : value;
  switch (prototype) {
    case null:
      return copyOfFields(value, Object.assign(Object.create(null), value), copies, depth);
    case Date.prototype:
      return new Date(value as Date);
    case Map.prototype:
      return copyOfMap(value as Map<unknown, unknown>, copies, depth);
    case Set.prototype:
      return copyOfSet(value as Set<unknown>, copies, depth);
    default:
      if (value instanceof Uint8Array) return Uint8Array.prototype.slice.call(value);
      return isOfObjects(prototype) ? copyOfFields(value, { ...value }, copies, depth) : value;
  }
}

/** Whether a prototype is that of plain objects, in this realm or in another one, such as those of `node:vm`. */
function isOfObjects(prototype: object): boolean {
  return Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, 'hasOwnProperty');
}

/** @param copy a shallow copy of the value, whose fields are now replaced by copies */
function copyOfFields(value: object, copy: Record<string, unknown>, copies: Copies, depth: number): object {
  copies.set(value, copy);
  // Assigns even to `__proto__`, because the copy already has it as an own property.
  for (const key in copy) copy[key] = copyOf(copy[key], copies, depth + 1);
  return copy;
}

function copyOfList(list: readonly unknown[], copies: Copies, depth: number): object {
  const copy = [...list];
  // Extra properties are kept, because recording the params refuses them.
  if (Reflect.ownKeys(list).length !== list.length + 1) Object.assign(copy, list);
  copies.set(list, copy);
  for (const [index, item] of copy.entries()) copy[index] = copyOf(item, copies, depth + 1);
  return copy;
}

function copyOfMap(map: ReadonlyMap<unknown, unknown>, copies: Copies, depth: number): object {
  const copy = new Map<unknown, unknown>();
  copies.set(map, copy);
  for (const [key, item] of map) copy.set(copyOf(key, copies, depth + 1), copyOf(item, copies, depth + 1));
  return copy;
}

function copyOfSet(set: ReadonlySet<unknown>, copies: Copies, depth: number): object {
  const copy = new Set<unknown>();
  copies.set(set, copy);
  for (const item of set) copy.add(copyOf(item, copies, depth + 1));
  return copy;
}

/** What is read back from the JSON of a value, which has no fields that are `undefined`. */
export function asRead(value: unknown, json: string): unknown {
  return hasUndefined(value) ? JSON.parse(json) : value;
}

function hasUndefined(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return value === undefined;
  for (const key in value) if (hasUndefined((value as Readonly<Record<string, unknown>>)[key])) return true;
  return false;
}

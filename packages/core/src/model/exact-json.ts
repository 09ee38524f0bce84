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

/**
 * Encodes a value with a schema, so that the schema can decode the result.
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

/** A field that a schema would silently drop. */
export interface DroppedField {
  /** Its position within the value, such as `.lines[0].note`. */
  readonly path: string;
  readonly reason: string;
}

const neverWritten = 'zod drops fields with this name whatever the schema says: rename the field';
const notListed = 'its schema lacks it, so it would be dropped: add it to the schema';

/**
 * Finds the first field of a value that its schema would drop silently when encoding, as `z.object` does with unlisted
 * keys.
 *
 * @param value a value that the schema has accepted
 * @param instances whether to report class instances, too, for which the schema would read back a plain object
 */
export function droppedField(
  schema: z.core.$ZodType,
  value: unknown,
  { instances = false }: { readonly instances?: boolean } = {},
): DroppedField | undefined {
  return droppedFields(schema, value, { path: '', instances })[0];
}

interface Place {
  readonly path: string;
  readonly instances: boolean;
}

function droppedFields(schema: z.core.$ZodType, value: unknown, place: Place): readonly DroppedField[] {
  if (typeof value !== 'object' || value === null) return [];
  const { def } = (schema as z.core.$ZodTypes)._zod;
  switch (def.type) {
    case 'object':
      return ofObject(def, value, place);
    case 'array':
      return ofItems(value, place, () => def.element);
    case 'tuple':
      return ofItems(value, place, (index) => def.items[index] ?? def.rest ?? undefined);
    case 'record':
      return Object.entries(value).flatMap(([key, field]) =>
        ofField(key, def.valueType, field, within(place, `.${key}`)),
      );
    case 'union': {
      // The first option that accepts the value is the one that encodes it.
      const chosen = def.options.find((option) => z.safeEncode(option, value).success);
      return chosen === undefined ? [] : droppedFields(chosen, value, place);
    }
    case 'intersection': {
      const ofLeft = droppedFields(def.left, value, place);
      const ofRight = droppedFields(def.right, value, place);
      const left = new Set(ofLeft.map(({ path }) => path));
      const right = new Set(ofRight.map(({ path }) => path));
      // A field dropped by one half may be encoded by the other. A field that is never encoded is missing from both.
      return [...ofLeft, ...ofRight].filter(
        ({ path, reason }) => reason === neverWritten || (left.has(path) && right.has(path)),
      );
    }
    case 'pipe':
      return droppedFields(def.out, value, place);
    case 'lazy':
      return droppedFields(def.getter(), value, place);
    case 'optional':
    case 'nullable':
    case 'nonoptional':
    case 'default':
    case 'prefault':
    case 'catch':
    case 'readonly':
      return droppedFields(def.innerType, value, place);
    default:
      return [];
  }
}

function ofObject(
  { shape, catchall }: z.core.$ZodObjectDef,
  value: object,
  place: Place,
): readonly DroppedField[] {
  const dropped: DroppedField[] = [];
  if (place.instances && !isPlain(value)) {
    const reason = `it is an instance of ${value.constructor.name}, but its schema would read back a plain object: use a codec`;
    dropped.push({ path: place.path, reason });
  }
  for (const [key, field] of Object.entries(value)) {
    const known = Object.hasOwn(shape, key) ? shape[key] : catchall;
    dropped.push(...ofField(key, known, field, within(place, `.${key}`)));
  }
  return dropped;
}

function ofField(
  key: string,
  schema: z.core.$ZodType | undefined,
  field: unknown,
  place: Place,
): readonly DroppedField[] {
  if (key === '__proto__') return [{ path: place.path, reason: neverWritten }];
  if (schema !== undefined) return droppedFields(schema, field, place);
  return field === undefined ? [] : [{ path: place.path, reason: notListed }];
}

function ofItems(
  value: object,
  place: Place,
  schemaAt: (index: number) => z.core.$ZodType | undefined,
): readonly DroppedField[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown, index) => {
    const schema = schemaAt(index);
    return schema === undefined ? [] : droppedFields(schema, item, within(place, `[${index}]`));
  });
}

function within({ path, instances }: Place, step: string): Place {
  return { path: path + step, instances };
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
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

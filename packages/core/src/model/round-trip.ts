import * as z from 'zod';

import { InvariantViolationError } from '../errors/framework-error.js';
import { UnstorableValueError } from '../errors/value-errors.js';

const zodMajor = 4;

/**
 * Refuses what is not a schema of this major version of zod, which would fail at the first value.
 *
 * @param name names the schema in the error, such as `params of WalletCloseAction`
 * @throws InvariantViolationError `invariant-violation`
 */
export function assertSchema(schema: unknown, name: string): void {
  const { _zod: own, _def: earlier } = (schema ?? {}) as {
    readonly _zod?: { readonly version?: { readonly major: number } };
    readonly _def?: unknown;
  };
  const major = own?.version?.major ?? (earlier === undefined ? undefined : 3);
  if (major === zodMajor) return;
  const what = major === undefined ? 'something that is not a schema of zod' : `a schema of zod ${major}`;
  throw new InvariantViolationError(`The ${name} are declared by ${what}: use zod ${zodMajor}`);
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
  const reason = `its schema cannot write it (${String(error)})`;
  return new UnstorableValueError(name, reason, { cause: error });
}

/**
 * Reads an encoded value back.
 *
 * @param encoded what the schema has written
 * @param name names the value in errors
 * @throws UnstorableValueError `unstorable-value` when the schema refuses what it has written, or throws
 */
export function readBack(schema: z.ZodType, encoded: unknown, name: string): unknown {
  const decoded = decode(schema, encoded, name);
  if (decoded.success) return decoded.data;
  const [{ path, message } = { path: [], message: 'unknown' }] = decoded.error.issues;
  throw unreadable([name, ...path].join('.'), message, decoded.error);
}

function decode(schema: z.ZodType, encoded: unknown, name: string): z.ZodSafeParseResult<unknown> {
  try {
    return z.safeDecode(schema, encoded);
  } catch (error) {
    throw unreadable(name, String(error), error);
  }
}

function unreadable(path: string, message: string, cause: unknown): UnstorableValueError {
  const reason = `its schema cannot read what it has written (${message}): let its codecs work in both directions`;
  return new UnstorableValueError(path, reason, { cause });
}

/** A place where a value that was written and read back is not the same any more. */
export interface Difference {
  /** Its position within the value, such as `.lines[0].note`. */
  readonly path: string;
  readonly reason: string;
}

/** Deeper values are taken for changed: the JSON of a value is refused before. */
const depthMax = 1_000;
/** From which depth on objects are remembered: most values are flat. */
const rememberedFrom = 3;

/** Finds the first place where a value differs from what was read back; a field that is `undefined` counts as absent. */
export function firstDifference(written: unknown, read: unknown): Difference | undefined {
  return new Comparison(false).difference(written, read, '');
}

/** Finds the first field that was not read back at all, as `z.object` drops unlisted keys; other values may have changed. */
export function firstLostField(written: unknown, read: unknown): Difference | undefined {
  return new Comparison(true).difference(written, read, '');
}

/** A comparison of a value that was written with what was read back. */
class Comparison {
  /** Whether other values may be read back, but no field may get lost. */
  readonly #mayChange: boolean;
  /** The objects that are or were compared, with what was read back, except the outermost ones. */
  #compared: Map<object, object> | undefined;
  #depth = 0;

  constructor(mayChange: boolean) {
    this.#mayChange = mayChange;
  }

  difference(written: unknown, read: unknown, path: string): Difference | undefined {
    if (written === read || (Number.isNaN(written) && Number.isNaN(read))) return undefined;
    if (!isObject(written) || !isObject(read) || this.#depth > depthMax) return this.#changed(path);
    // They may refer to each other in a circle. What was found to be different has ended the comparison.
    if (this.#depth >= rememberedFrom) {
      this.#compared ??= new Map();
      if (this.#compared.get(written) === read) return undefined;
      this.#compared.set(written, read);
    }
    this.#depth++;
    const found = this.#ofObjects(written, read, path);
    this.#depth--;
    return found;
  }

  #ofObjects(written: object, read: object, path: string): Difference | undefined {
    if (Array.isArray(written))
      return Array.isArray(read) ? this.#ofItems(written, read, path) : this.#changed(path);
    if (isPlain(written)) return isPlain(read) ? this.#ofFields(written, read, path) : this.#changed(path);
    return this.#ofInstances(written, read, path);
  }

  #changed(path: string): Difference | undefined {
    if (this.#mayChange) return undefined;
    const reason =
      'its schema reads back another value: change the value before, not with trim, overwrite, default or the like';
    return { path, reason };
  }

  #ofItems(written: readonly unknown[], read: readonly unknown[], path: string): Difference | undefined {
    if (written.length !== read.length) return this.#changed(path);
    for (const [index, item] of written.entries()) {
      const found = this.difference(item, read[index], `${path}[${index}]`);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #ofFields(written: object, read: object, path: string): Difference | undefined {
    const [given, fields] = [written as Fields, read as Fields];
    for (const key of Object.keys(given)) {
      const field = given[key];
      if (field === undefined || field === fields[key]) continue;
      const inner = `${path}.${key}`;
      if (!Object.hasOwn(fields, key)) return lost(key, inner);
      const found = this.difference(field, fields[key], inner);
      if (found !== undefined) return found;
    }
    for (const key of Object.keys(fields))
      if (fields[key] !== undefined && (given[key] === undefined || !Object.hasOwn(given, key)))
        return this.#changed(`${path}.${key}`);
    return undefined;
  }

  #ofInstances(written: object, read: object, path: string): Difference | undefined {
    if (isPlain(read)) {
      if (this.#mayChange) return this.#ofFields(written, read, path);
      const reason = `it is an instance of ${written.constructor.name}, but its schema would read back a plain object: use a codec`;
      return { path, reason };
    }
    if (Object.getPrototypeOf(written) !== Object.getPrototypeOf(read)) return this.#changed(path);
    if (written instanceof Map) return this.#ofEntries(written, read as typeof written, path);
    if (written instanceof Set) return this.#ofItems([...written], [...(read as typeof written)], path);
    const [text, readText] = [textOf(written), textOf(read)];
    if (text !== undefined) return text === readText ? undefined : this.#changed(path);
    return this.#ofFields(written, read, path);
  }

  /** The database keeps the keys of an object in an order of its own. */
  #ofEntries(
    written: ReadonlyMap<unknown, unknown>,
    read: ReadonlyMap<unknown, unknown>,
    path: string,
  ): Difference | undefined {
    if (![...written.keys()].every((key) => read.has(key)))
      return this.#ofItems([...written], [...read], path);
    if (written.size !== read.size) return this.#changed(path);
    for (const [key, item] of written) {
      const found = this.difference(item, read.get(key), `${path}[${String(key)}]`);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

type Fields = Readonly<Record<string, unknown>>;

function lost(key: string, path: string): Difference {
  return key === '__proto__'
    ? { path, reason: 'zod drops fields with this name whatever the schema says: rename the field' }
    : { path, reason: 'its schema lacks it, so it would be dropped: add it to the schema' };
}

/** What an instance says of itself, such as a date or a decimal: two of the same class with the same text are the same. */
function textOf(instance: object): string | undefined {
  if (instance instanceof Date) return String(instance.getTime());
  const { toJSON, toString } = instance as { toJSON?: () => unknown; toString: () => string };
  if (typeof toJSON === 'function') {
    const json = toJSON.call(instance);
    return typeof json === 'string' ? json : JSON.stringify(json);
  }
  const { toString: plain } = Object.prototype as { readonly toString: unknown };
  return toString === plain ? undefined : toString.call(instance);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function isPlain(value: object): boolean {
  if (Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

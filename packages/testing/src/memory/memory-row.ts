import { ShardIdentifier } from '@framework/core';
import { UnstorableValueError, checkText } from '@framework/core/adapter';

/** A row of a database in memory. Only the database refers to it, so nothing else can change it. */
export class MemoryRow {
  readonly id: string;
  readonly version: number;
  readonly state: string;
  /** The fields from which the repository makes the model. */
  readonly fields: object;
  /** Whether the fields are complete. If not, an update keeps the stored fields that are missing here. */
  readonly isWhole: boolean;

  constructor(row: {
    readonly id: string;
    readonly version: number;
    readonly state: string;
    readonly fields: object;
    readonly isWhole: boolean;
  }) {
    this.id = row.id;
    this.version = row.version;
    this.state = row.state;
    this.fields = row.fields;
    this.isWhole = row.isWhole;
  }

  /** The stored row after this row has updated it. */
  over(stored: MemoryRow): MemoryRow {
    if (this.isWhole) return this;
    const { id, version, state, isWhole } = this;
    return new MemoryRow({ id, version, state, isWhole, fields: { ...stored.fields, ...this.fields } });
  }
}

const depthMax = 64;

/**
 * Makes a deep copy, so that no later change of one shows in the other. Objects keep their classes.
 *
 * @param path names the value in errors, such as `Wallet.balance`
 * @throws UnstorableValueError `unstorable-value` for values that no database returns (numbers that are not finite,
 * invalid dates, `\u0000`, lone surrogates, functions, nesting beyond 64 levels), and for objects that keep everything
 * in private fields, which cannot be copied from outside
 */
export function faithfulCopy<T>(value: T, path: string): T;
export function faithfulCopy(value: unknown, path: string): unknown {
  return copyOf(value, path, 0);
}

function copyOf(value: unknown, path: string, depth: number): unknown {
  if (depth > depthMax) throw new UnstorableValueError(path, `it is nested deeper than ${depthMax} levels`);
  switch (typeof value) {
    case 'string':
      checkText(value, path);
      return value;
    case 'number':
      if (!Number.isFinite(value)) throw unstorable(path, value);
      return value;
    case 'function':
    case 'symbol':
      throw unstorable(path, value);
    case 'object':
      return value === null ? null : copyOfObject(value, path, depth);
    default:
      return value;
  }
}

function copyOfObject(value: object, path: string, depth: number): unknown {
  // Equal shards are the same object.
  if (value instanceof ShardIdentifier) return value;
  if (value instanceof Date) return copyOfDate(value, path);
  if (value instanceof Uint8Array) return Uint8Array.prototype.slice.call(value);
  if (Array.isArray(value))
    return Array.from(value, (item, index) => copyOf(item, `${path}[${index}]`, depth + 1));
  if (value instanceof Map) {
    const entries = [...value].map(([key, item]) => [key, copyOf(item, `${path}.${String(key)}`, depth + 1)]);
    return new Map(entries as [unknown, unknown][]);
  }
  if (value instanceof Set) return new Set([...value].map((item) => copyOf(item, path, depth + 1)));
  return copyOfFields(value, path, depth);
}

function copyOfDate(date: Date, path: string): Date {
  if (Number.isNaN(date.getTime())) throw new UnstorableValueError(path, 'it is an invalid date');
  return new Date(date);
}

/** Copies a plain object or an instance of a class, without calling its constructor. */
function copyOfFields(value: object, path: string, depth: number): object {
  const prototype: unknown = Object.getPrototypeOf(value);
  const isPlain = prototype === Object.prototype || prototype === null;
  const entries = Object.entries(value);
  if (!isPlain && entries.length === 0) {
    const reason = `${value.constructor.name} hides its state: write toRow and toModel in your own repository`;
    throw new UnstorableValueError(path, reason);
  }
  const copy = Object.create(prototype as object | null) as Record<string, unknown>;
  for (const [key, field] of entries) {
    checkText(key, path);
    // Some classes, such as big.js, keep their constructor in every instance.
    const isOwnClass = !isPlain && typeof field === 'function' && field === value.constructor;
    copy[key] = isOwnClass ? field : copyOf(field, `${path}.${key}`, depth + 1);
  }
  return copy;
}

function unstorable(path: string, value: unknown): UnstorableValueError {
  return new UnstorableValueError(path, `no database can store ${String(value)}`);
}

/** A class whose instances were written, under a unique name. */
interface WrittenClass {
  readonly name: string;
  readonly prototype: object;
  readonly constructor: unknown;
}

const byPrototype = new Map<object, WrittenClass>();
const byName = new Map<string, WrittenClass>();

/** The key under which an object records its class, if it is not a plain object. */
const tag = '$kind';

type Tagged = Readonly<Record<string, unknown>>;

/**
 * Writes as JSON whatever `faithfulCopy` can copy. Objects keep their classes for as long as the process lives.
 *
 * Used for the results of actions in memory, whose classes are not known from a table.
 */
export function toJson(value: unknown): string {
  return JSON.stringify(written(value));
}

/** Reads what {@link toJson} wrote in this process. */
export function fromJson(json: string): unknown {
  return read(JSON.parse(json));
}

function written(value: unknown): unknown {
  if (typeof value === 'bigint') return { [tag]: 'bigint', value: String(value) };
  if (value === undefined) return { [tag]: 'undefined' };
  if (Object.is(value, -0)) return { [tag]: '-0' };
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(written);
  if (value instanceof Date) return { [tag]: 'Date', value: value.getTime() };
  if (value instanceof ShardIdentifier) return { [tag]: 'shard', value: [value.group, value.member] };
  if (value instanceof Uint8Array) return { [tag]: 'bytes', value: Buffer.from(value).toString('base64') };
  if (value instanceof Map) return { [tag]: 'Map', value: [...value].map(written) };
  if (value instanceof Set) return { [tag]: 'Set', value: [...value].map(written) };
  return writtenObject(value);
}

function writtenObject(value: object): unknown {
  const prototype = Object.getPrototypeOf(value) as object | null;
  const isPlain = prototype === Object.prototype || prototype === null;
  // Some classes keep their constructor in every instance, like big.js.
  const fields = Object.entries(value).map(([key, field]) => [
    key,
    !isPlain && key === 'constructor' && typeof field === 'function'
      ? { [tag]: 'constructor' }
      : written(field),
  ]);
  if (isPlain) return tag in value ? { [tag]: 'Object', value: fields } : Object.fromEntries(fields);
  return { [tag]: 'instance', class: nameOf(value, prototype), value: fields };
}

function nameOf(value: object, prototype: object): string {
  let known = byPrototype.get(prototype);
  if (known === undefined) {
    const { name } = value.constructor;
    const sameName = [...byName.values()].filter((each) => each.name.replace(/#\d+$/, '') === name);
    known = { name: `${name}#${sameName.length}`, prototype, constructor: value.constructor };
    byPrototype.set(prototype, known);
    byName.set(known.name, known);
  }
  return known.name;
}

function read(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(read);
  const given = value as Tagged;
  switch (given[tag]) {
    case undefined:
      return Object.fromEntries(Object.entries(given).map(([key, field]) => [key, read(field)]));
    case 'undefined':
      return undefined;
    case '-0':
      return -0;
    case 'bigint':
      return BigInt(given['value'] as string);
    case 'Date':
      return new Date(given['value'] as number);
    case 'shard':
      return ShardIdentifier.of(...(given['value'] as [number, number]));
    case 'bytes':
      return new Uint8Array(Buffer.from(given['value'] as string, 'base64'));
    case 'Map':
      return new Map((given['value'] as unknown[]).map((entry) => read(entry) as [unknown, unknown]));
    case 'Set':
      return new Set((given['value'] as unknown[]).map(read));
    default:
      return readObject(given);
  }
}

function readObject({ class: name, value }: Tagged): object {
  const known = typeof name === 'string' ? byName.get(name) : undefined;
  const object = Object.create(known?.prototype ?? Object.prototype) as Record<string, unknown>;
  for (const [key, field] of value as [string, Tagged][]) {
    const isConstructor = (field as Tagged | null)?.[tag] === 'constructor';
    object[key] = isConstructor ? known?.constructor : read(field);
  }
  return object;
}

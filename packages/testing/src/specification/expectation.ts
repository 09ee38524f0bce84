import { Entity, FrameworkError, ModelEvent } from '@framework/core';
import type { AnyEntity } from '@framework/core/adapter';
import { AssertionError } from 'node:assert';
import { isDeepStrictEqual } from 'node:util';

/**
 * The kind of error: `dead-letter` (a handler gave up on an event), `never-idle` (handlers trigger each other endlessly),
 * `unwanted-event` (no handler wants the event that is to be handled), `unknown-model` (a model that the specification does not
 * list), `no-strategy` (a model whose id contains no shard is listed without its sharding strategy).
 */
export type SpecificationErrorCode =
  'dead-letter' | 'never-idle' | 'unwanted-event' | 'unknown-model' | 'no-strategy';

/** Says why a specification cannot continue, and what to do about it. */
export class SpecificationError extends Error {
  override readonly name = 'SpecificationError';
  readonly code: SpecificationErrorCode;

  constructor(code: SpecificationErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/**
 * Compares a value with what is expected, except for what the expectation leaves open.
 *
 * @param what describes the value in the error, such as `events`
 * @throws AssertionError with the difference, as every test runner shows it
 */
export function assertMatches(what: string, actual: unknown, expected: unknown): void {
  const compared = matched(actual, expected);
  if (isDeepStrictEqual(compared.actual, compared.expected)) return;
  const { message } = new AssertionError({ ...readable(compared), operator: 'deepStrictEqual' });
  throw new AssertionError({
    ...readable(compared),
    message: `The ${what} differ. ${message}`,
    operator: 'specification',
    stackStartFn: assertMatches,
  });
}

/**
 * Compares a list with what is expected, in any order in which its items may come.
 *
 * @param follows whether one item comes after an earlier one in every run; by their positions in the list
 * @throws AssertionError with the difference from the order that fits best
 */
export function assertMatchesInSomeOrder(
  what: string,
  actual: readonly unknown[],
  expected: readonly unknown[],
  follows: (later: number, earlier: number) => boolean,
): void {
  const isAsExpected = isMatch(actual, expected);
  assertMatches(what, isAsExpected ? actual : bestOrder(actual, expected, follows), expected);
}

/** How many comparisons the search for the best order may take: expectations that leave much open have many orders. */
const comparisonsMax = 10_000;

/** The order that matches the expectation for as long as possible, found by trying the items that may come next. */
function bestOrder(
  actual: readonly unknown[],
  expected: readonly unknown[],
  follows: (later: number, earlier: number) => boolean,
): readonly unknown[] {
  const places = [...actual.keys()];
  let best: readonly number[] = [];
  let comparisons = 0;
  const search = (taken: readonly number[]): boolean => {
    if (taken.length > best.length) best = taken;
    if (taken.length === expected.length) return true;
    const rest = places.filter((place) => !taken.includes(place));
    const next = rest.filter((place) => !rest.some((other) => other < place && follows(place, other)));
    return next.some((place) => {
      if (comparisons++ > comparisonsMax) return false;
      return isMatch(actual[place], expected[taken.length]) && search([...taken, place]);
    });
  };
  search([]);
  return [...best, ...places.filter((place) => !best.includes(place))].map((place) => actual[place]);
}

function isMatch(actual: unknown, expected: unknown): boolean {
  const compared = matched(actual, expected);
  return isDeepStrictEqual(compared.actual, compared.expected);
}

/** Shortens both values, unless that would hide the difference. */
function readable({ actual, expected }: Matched): Matched {
  const short: Matched = { actual: shown(actual), expected: shown(expected) };
  return isDeepStrictEqual(short.actual, short.expected) ? { actual, expected } : short;
}

/** An error by its `code`, or by its class. */
export type ExpectedError = string | (abstract new (...args: never[]) => Error);

/** How something ended. */
export type Ending = { readonly result: unknown } | { readonly error: unknown };

/**
 * Compares what was thrown with what is expected.
 *
 * @throws AssertionError with what was thrown as its cause, or with the result when nothing was thrown
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

/** The `code` of an error, or of the framework's error that it wraps; otherwise its name. */
function codeOf(error: unknown): string {
  if (typeof error === 'object' && error !== null && 'code' in error) return String(error.code);
  return FrameworkError.find(error)?.code ?? (error instanceof Error ? error.name : typeof error);
}

/** A value, or some fields of an object, from {@link like}; a model is compared without its version, dates and attached events. */
export type Expected<T> =
  | T
  | (T extends object ? Like<T> : never)
  | (T extends readonly (infer Item)[] ? readonly Expected<Item>[] : never);

/** An event as it was created, or some of its fields. */
export type ExpectedEvent = ModelEvent<unknown> | Like<ModelEvent<unknown>>;

/** A model as its own methods create it, or some of its fields. */
export type ExpectedModel = AnyEntity | Like<AnyEntity>;

/**
 * What must have happened; anything left out is not compared.
 *
 * The order is compared where there is one: within an action, within one model, within what a handler does for one model, and
 * from a cause to its consequences. What handlers do independently of each other may be expected in either order.
 */
export interface ExpectedEffects {
  /** All events that were committed, in their order. */
  readonly events?: readonly ExpectedEvent[];
  /** All models that were added or updated, in their present state, in the order of their first change. */
  readonly models?: readonly ExpectedModel[];
}

/** The part of a model, an event or any other object that is compared: some of its fields; the others are left open. */
export class Like<out T> {
  /** Exists only in the type: what is compared. */
  declare readonly compared: T;
  /** The class that the object must have. */
  readonly type: abstract new (...args: never[]) => unknown;
  readonly fields: object;

  constructor(type: abstract new (...args: never[]) => unknown, fields: object) {
    this.type = type;
    this.fields = fields;
  }
}

/** Some of the fields of an object, without its methods. */
export type SomeFields<T> = {
  readonly [K in keyof T as T[K] extends (...args: never[]) => unknown ? never : K]?: T[K];
};

/**
 * Expects an object of a class with some fields, and leaves the others open: ids and versions that an action creates, and
 * everything that the specification is not about.
 *
 * ```ts
 * like(Transfer, { state: 'REFUNDED', reason: 'wallet-closed' })
 * ```
 */
export function like<T extends object>(
  type: abstract new (...args: never[]) => T,
  fields: SomeFields<NoInfer<T>>,
): Like<T> {
  return new Like<T>(type, fields);
}

/** Fields set by storing and staging, not by a decision of the model. */
const ofStorage: ReadonlySet<string> = new Set(['version', 'createdDate', 'updatedDate', 'events']);
/** The field of an event that its class already determines. */
const ofEvents: ReadonlySet<string> = new Set(['model']);

type AnyClass = abstract new (...args: never[]) => unknown;

/** The two values to be compared. */
interface Matched {
  readonly actual: unknown;
  readonly expected: unknown;
}

/** Removes from both values what the expectation leaves open. */
function matched(actual: unknown, expected: unknown): Matched {
  if (expected instanceof Like) return matchedFields(actual, expected.type, expected.fields);
  if (expected instanceof Entity)
    return matchedFields(actual, classOf(expected), without(ofStorage, expected));
  if (expected instanceof ModelEvent)
    return matchedFields(actual, classOf(expected), without(ofEvents, expected));
  if (Array.isArray(actual) && Array.isArray(expected)) return matchedItems(actual, expected);
  return { actual, expected };
}

/** Keeps only these fields; of an object of another class, everything. */
function matchedFields(actual: unknown, type: AnyClass, fields: object): Matched {
  if (typeof actual !== 'object' || actual === null || !(actual instanceof type))
    return { actual, expected: objectOf(type, fields) };
  const values = new Map(Object.entries(actual));
  const pairs = Object.entries(fields).map(
    ([field, expected]) => [field, matched(values.get(field), expected)] as const,
  );
  return {
    actual: objectOf(type, Object.fromEntries(pairs.map(([field, pair]) => [field, pair.actual]))),
    expected: objectOf(type, Object.fromEntries(pairs.map(([field, pair]) => [field, pair.expected]))),
  };
}

function matchedItems(actual: readonly unknown[], expected: readonly unknown[]): Matched {
  const pairs = expected.map((item, index) => matched(actual[index], item));
  const beyond = actual.slice(pairs.length);
  return {
    actual: [...pairs.slice(0, actual.length).map((pair) => pair.actual), ...beyond],
    expected: pairs.map((pair) => pair.expected),
  };
}

/** An object of the class with only these fields, so that the name of the class is printed. */
function objectOf({ prototype }: AnyClass, fields: object): object {
  return Object.create(prototype as object, Object.getOwnPropertyDescriptors(fields)) as object;
}

function classOf({ constructor }: object): AnyClass {
  return constructor as unknown as AnyClass;
}

function without(left: ReadonlySet<string>, fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([field]) => !left.has(field)));
}

/** A value as a difference shows it; a value with a `toJSON` method is shown as its class and its JSON, such as `Big 25.5`. */
function shown(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Date) return value;
  if (Array.isArray(value)) return value.map(shown);
  const prototype: unknown = Object.getPrototypeOf(value);
  const isPlain = prototype === Object.prototype || prototype === null;
  if (!isPlain && 'toJSON' in value) return `${value.constructor.name} ${textOf(value)}`;
  const fields = Object.entries(value).map(([field, each]) => [
    field,
    { value: shown(each), enumerable: true },
  ]);
  return Object.create(prototype as object | null, Object.fromEntries(fields) as PropertyDescriptorMap);
}

function textOf(value: object): string {
  const json: unknown = JSON.parse(JSON.stringify(value));
  return typeof json === 'string' ? json : JSON.stringify(json);
}

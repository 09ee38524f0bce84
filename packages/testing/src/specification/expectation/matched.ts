import { Entity, ModelEvent } from '@framework/core';
import { Like } from './like.js';

/** What storing and staging set, and no decision of a model. */
const ofStorage: ReadonlySet<string> = new Set(['version', 'createdDate', 'updatedDate', 'events']);
/** Says no more than the class of the event does. */
const ofEvents: ReadonlySet<string> = new Set(['model']);

type AnyClass = abstract new (...args: never[]) => unknown;

/** What is to be compared with each other. */
export interface Matched {
  readonly actual: unknown;
  readonly expected: unknown;
}

/** Leaves out of both sides what the expectation leaves open. */
export function matched(actual: unknown, expected: unknown): Matched {
  if (expected instanceof Like) return matchedFields(actual, expected.type, expected.fields);
  if (expected instanceof Entity)
    return matchedFields(actual, classOf(expected), without(ofStorage, expected));
  if (expected instanceof ModelEvent)
    return matchedFields(actual, classOf(expected), without(ofEvents, expected));
  if (Array.isArray(actual) && Array.isArray(expected)) return matchedItems(actual, expected);
  return { actual, expected };
}

/** Only these fields; of an object of another class, everything. */
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

/** An object of the class with these fields alone, which shows the name of the class where it is printed. */
function objectOf({ prototype }: AnyClass, fields: object): object {
  return Object.create(prototype as object, Object.getOwnPropertyDescriptors(fields)) as object;
}

function classOf({ constructor }: object): AnyClass {
  return constructor as unknown as AnyClass;
}

function without(left: ReadonlySet<string>, fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([field]) => !left.has(field)));
}

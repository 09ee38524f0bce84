import { UnstorableValueError } from '@framework/core/adapter';

import { type ValueType, shown, textual } from './value-type.js';

const dayMs = 24 * 60 * 60 * 1_000;
/** How many digits of a second the database keeps if a column declares no precision. */
const secondDigits = 6;
/** Times that a `Date` does not hold, because it ends with milliseconds. */
const microseconds = /\.\d{4}/;
const clock = /^(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d{0,5}[1-9]))?$/;

/** Days: as texts such as `2026-03-04`, or as a `Date` at midnight in UTC. */
export function dateType(mode: 'string' | 'date'): ValueType {
  const type = { cast: 'date', order: 'text' } as const;
  if (mode === 'string') return { ...textual(type, isDay, 'a day such as 2026-03-04'), read: inRange };
  return {
    ...type,
    write: (value, path) => {
      const date = validDate(value, path);
      if (date.getTime() % dayMs === 0) return date.toISOString().slice(0, 10);
      const reason = `date would lose the time of ${date.toISOString()}; write midnight in UTC`;
      throw new UnstorableValueError(path, reason);
    },
    read: (sent) => new Date(inRange(sent)),
  };
}

/** Times of the day, as texts such as `07:05:00.25`. */
export function timeType(precision: number = secondDigits): ValueType {
  return textual(
    { cast: 'time', order: 'text' },
    (text) => text === '24:00:00' || isClock(text, precision),
    `a time such as 07:05:00.25, with at most ${precision} decimal places that do not end with 0`,
  );
}

/** Instants, or local times without a zone: as texts, or as a `Date`, which is in UTC. */
export function timestampType(
  mode: 'string' | 'date',
  withZone: boolean,
  precision: number = secondDigits,
): ValueType {
  const type = { cast: withZone ? 'timestamptz' : 'timestamp', order: 'text' } as const;
  if (mode === 'string') {
    const zone = withZone ? '+00' : '';
    const isExact = (text: string): boolean =>
      text[10] === ' ' &&
      text.endsWith(zone) &&
      isDay(text.slice(0, 10)) &&
      isClock(text.slice(11, text.length - zone.length), precision);
    const example = `a time such as 2026-03-04 07:05:00.25${zone}, with at most ${precision} decimal places that do not end with 0`;
    return { ...textual(type, isExact, example), read: inRange };
  }
  return {
    ...type,
    inexact: microseconds,
    write: (value, path) => {
      const date = validDate(value, path);
      if (date.getTime() % 10 ** Math.max(0, 3 - precision) === 0) return date.toISOString();
      throw new UnstorableValueError(path, `timestamp(${precision}) would round ${date.toISOString()}`);
    },
    read: (sent) => {
      const text = inRange(sent);
      const zoned = withZone || text.endsWith('Z') ? text : `${text}+00`;
      // JavaScript takes the years 1 to 99 for years of another century, except in the form of ISO 8601.
      return new Date(text.startsWith('00') ? zoned.replace(' ', 'T').replace(/[+-]\d\d$/, '$&:00') : zoned);
    },
  };
}

/** Whether a text is a day of the calendar, in the years 1 to 9999. */
function isDay(text: string): boolean {
  if (!/^(?!0000)\d{4}-\d\d-\d\d$/.test(text)) return false;
  const date = new Date(text);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text);
}

function isClock(text: string, precision: number): boolean {
  const found = clock.exec(text);
  return found !== null && (found[1] ?? '').length <= precision;
}

function validDate(value: unknown, path: string): Date {
  if (!(value instanceof Date) || Number.isNaN(value.getTime()))
    throw new UnstorableValueError(path, 'it is not a valid Date');
  const year = value.getUTCFullYear();
  if (year >= 1 && year <= 9999) return value;
  throw new UnstorableValueError(path, `the year ${year} is outside the range 1 to 9999`);
}

/** Returns the text of a day or an instant, unless it is infinite, or in a year of other than four digits. */
function inRange(sent: unknown): string {
  const text = String(sent);
  if (/^\d{4}-[^B]*$/.test(text)) return text;
  throw new RangeError(`${shown(text)} is outside the years 1 to 9999`);
}

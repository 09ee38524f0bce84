import { InvariantViolationError } from '@framework/core';
import { UnstorableValueError, checkText, exactJson } from '@framework/core/adapter';
import { is } from 'drizzle-orm';
import {
  PgArray,
  PgBigInt64,
  PgBigSerial64,
  PgBinaryVector,
  PgBoolean,
  PgChar,
  PgCidr,
  type PgColumn,
  PgCustomColumn,
  PgDate,
  PgDateString,
  PgEnumColumn,
  PgEnumObjectColumn,
  PgGeometry,
  PgGeometryObject,
  PgHalfVector,
  PgInet,
  PgInterval,
  PgJson,
  PgJsonb,
  PgLineABC,
  PgLineTuple,
  PgMacaddr,
  PgMacaddr8,
  PgNumeric,
  PgNumericBigInt,
  PgNumericNumber,
  PgPointObject,
  PgPointTuple,
  PgReal,
  PgText,
  PgTime,
  PgTimestamp,
  PgTimestampString,
  PgUUID,
  PgVarchar,
  PgVector,
} from 'drizzle-orm/pg-core';

import { PgValueColumn } from '../model-columns.js';
import {
  type IsCanonical,
  isAddress,
  isDate,
  isHardwareAddress,
  isInterval,
  isTime,
  isTimestamp,
  isUuid,
  shortestSingle,
} from './canonical-text.js';
import { ownBytes } from './stored-form.js';

const dayMs = 24 * 60 * 60 * 1_000;

/**
 * Converts a value of a column into what is sent to the database.
 *
 * @throws UnstorableValueError `unstorable-value` when the value would not be read back unchanged
 */
export type ColumnWriter = (value: unknown, path: string) => unknown;

/**
 * Creates the writer of a column's values, once per table.
 *
 * @throws InvariantViolationError `invariant-violation` for a column whose values could never be read
 */
export function columnWriter(column: PgColumn): ColumnWriter {
  if (is(column, PgValueColumn)) return valueWriter(column);
  const guard = columnGuard(column);
  return (value, path) => {
    guard(value, path);
    return ownBytes(column.mapToDriverValue(value));
  };
}

/** The text into which a value is converted is checked like any other value of the underlying column. */
function valueWriter(column: PgValueColumn): ColumnWriter {
  const { base, valueClass } = column;
  const guard = columnGuard(base);
  return (value, path) => {
    if (!(value instanceof valueClass))
      throw new UnstorableValueError(path, `it is not a ${valueClass.name}`);
    const sent = column.mapToDriverValue(value);
    guard(sent, path);
    return sent;
  };
}

/** Refuses a value that would not be read back unchanged. */
export type ColumnGuard = (value: unknown, path: string) => void;

/**
 * Creates the guard of a column, once per table.
 *
 * @throws InvariantViolationError `invariant-violation` for a column whose values could never be read
 */
export function columnGuard(column: PgColumn): ColumnGuard {
  if (is(column, PgValueColumn)) return valueWriter(column);
  if (is(column, PgArray)) return arrayGuard(column.baseColumn);
  if (is(column, PgNumeric)) return numericGuard('string', column.precision, column.scale);
  if (is(column, PgNumericNumber)) return numericGuard('number', column.precision, column.scale);
  if (is(column, PgNumericBigInt)) return wholeNumericGuard(column);
  if (is(column, PgTimestamp)) return instantGuard(column.precision);
  if (is(column, PgDate)) return dayGuard;
  if (is(column, PgJson) || is(column, PgJsonb)) return (value, path) => void exactJson(value, path);
  if (is(column, PgBigInt64) || is(column, PgBigSerial64)) return bigintGuard;
  if (is(column, PgBoolean)) return typeGuard('boolean');
  if (is(column, PgReal)) return realGuard;
  if (is(column, PgEnumColumn) || is(column, PgEnumObjectColumn)) return enumGuard(column.enumValues);
  return (
    characterGuard(column) ??
    canonicalGuard(column) ??
    coordinateGuard(column) ??
    (column.dataType === 'number' ? numberGuard(column.getSQLType()) : convertedGuard(column))
  );
}

const secondDigits = 6;

/** The guard of a column whose texts the database rewrites, unless they are in the database's own form. */
function canonicalGuard(column: PgColumn): ColumnGuard | undefined {
  if (is(column, PgUUID)) return rewrittenGuard(isUuid, 'lower case with dashes');
  if (is(column, PgDateString)) return rewrittenGuard(isDate, '2026-03-04');
  if (is(column, PgTimestampString)) {
    const { withTimezone, precision = secondDigits } = column;
    const example = `2026-03-04 07:05:00.25${withTimezone ? '+00' : ''}`;
    return rewrittenGuard(
      isTimestamp(withTimezone, precision),
      `${example}, at most ${precision} decimal places`,
    );
  }
  if (is(column, PgTime)) {
    const { withTimezone, precision = secondDigits } = column;
    const example = `07:05:00.25${withTimezone ? '+05:30' : ''}`;
    return rewrittenGuard(isTime(withTimezone, precision), `${example}, at most ${precision} decimal places`);
  }
  if (is(column, PgInterval)) {
    const { fields, precision = secondDigits } = column as {
      readonly fields?: string;
      readonly precision?: number;
    };
    const isKept = isInterval(precision);
    return rewrittenGuard(
      (text) => fields === undefined && isKept(text),
      '1 year 2 mons 3 days 04:05:06.25, in a column without restricted fields',
    );
  }
  if (is(column, PgInet)) return rewrittenGuard(isAddress('inet'), '10.0.0.1, 10.0.0.0/8 or 2001:db8::1');
  if (is(column, PgCidr)) return rewrittenGuard(isAddress('cidr'), '10.0.0.0/8 or 2001:db8::/32');
  if (is(column, PgMacaddr)) return rewrittenGuard(isHardwareAddress(6), '08:00:2b:01:02:03');
  if (is(column, PgMacaddr8)) return rewrittenGuard(isHardwareAddress(8), '08:00:2b:01:02:03:04:05');
  return undefined;
}

function rewrittenGuard(isCanonical: IsCanonical, example: string): ColumnGuard {
  return (value, path) => {
    if (typeof value === 'string' && isCanonical(value)) return;
    const reason = `the database would refuse or rewrite '${String(value).slice(0, 80)}'; write it as ${example}`;
    throw new UnstorableValueError(path, reason);
  };
}

function arrayGuard(base: PgColumn): ColumnGuard {
  const elementGuard = columnGuard(base);
  return (value, path) => {
    if (!Array.isArray(value)) throw new UnstorableValueError(path, 'it is not an array');
    // Goes by index, because forEach would skip holes.
    for (let index = 0; index < value.length; index++) {
      const element: unknown = value[index];
      const elementPath = `${path}[${index}]`;
      if (element === undefined) throw new UnstorableValueError(elementPath, 'it is undefined; write null');
      if (element !== null) elementGuard(element, elementPath);
      if (is(base, PgArray)) checkRow(element, value[0], elementPath);
      // An array is sent as one text.
      const sent = is(base, PgCustomColumn) && element !== null && base.mapToDriverValue(element);
      if (typeof sent === 'object' && sent !== null)
        throw new UnstorableValueError(
          elementPath,
          'lists hold no bytes or objects: let toDriver return text',
        );
    }
  };
}

/** An array of arrays must be rectangular, and an empty one has no second dimension. */
function checkRow(row: unknown, first: unknown, path: string): void {
  if (Array.isArray(row) && Array.isArray(first) && row.length > 0 && row.length === first.length) return;
  throw new UnstorableValueError(path, 'all lists in a list must have the same length, which must not be 0');
}

function typeGuard(type: 'string' | 'number' | 'bigint' | 'boolean'): ColumnGuard {
  return (value, path) => {
    if (typeof value !== type) throw new UnstorableValueError(path, `it is not a ${type}`);
  };
}

/** The limits of PostgreSQL for a decimal without a precision. */
const wholeDigitsMax = 131_072;
const fractionDigitsMax = 16_383;

function wholeNumericGuard({
  name,
  precision,
  scale = 0,
}: {
  readonly name: string;
  readonly precision: number | undefined;
  readonly scale: number | undefined;
}): ColumnGuard {
  if (precision !== undefined && scale > 0) {
    const reason = `Column ${name} is numeric(${precision}, ${scale}), whose decimals cannot be read as bigint`;
    throw new InvariantViolationError(`${reason}: declare it without a scale, or in another mode`);
  }
  return numericGuard('bigint', precision, scale);
}

function numericGuard(
  type: 'string' | 'number' | 'bigint',
  precision: number | undefined,
  scale = 0,
): ColumnGuard {
  const isOfType = typeGuard(type);
  return (value, path) => {
    isOfType(value, path);
    const [, whole = '', fraction = ''] = /^-?(\d*)(?:\.(\d*))?$/.exec(String(value)) ?? [];
    if (whole === '' && fraction === '') {
      throw new UnstorableValueError(
        path,
        `'${String(value).slice(0, 40)}' is not a plain decimal; write it with toFixed()`,
      );
    }
    if (whole.length > wholeDigitsMax || fraction.length > fractionDigitsMax)
      throw new UnstorableValueError(path, 'a numeric cannot have that many digits');
    if (precision === undefined) return;
    // A scale may be negative, or greater than the precision: then digits are lost before the decimal point, or refused after it.
    const places = whole + fraction.padEnd(scale, '0');
    const first = whole.length - (precision - scale);
    const beyond = places.slice(0, Math.max(0, first)) + places.slice(Math.max(0, whole.length + scale));
    if (/[1-9]/.test(beyond)) {
      throw new UnstorableValueError(
        path,
        `numeric(${precision}, ${scale}) would round or refuse ${String(value).slice(0, 80)}`,
      );
    }
  };
}

function instantGuard(precision: number | undefined): ColumnGuard {
  return (value, path) => {
    if (!(value instanceof Date) || Number.isNaN(value.getTime()))
      throw new UnstorableValueError(path, 'it is not a valid Date');
    const year = value.getUTCFullYear();
    // Drizzle reads the text of a timestamp with `new Date`, which takes the years 1 to 99 for years of the 20th or 21st century.
    if (year < 100 || year > 9999)
      throw new UnstorableValueError(path, `the year ${year} is outside the range 100 to 9999`);
    if (precision !== undefined && value.getTime() % 10 ** Math.max(0, 3 - precision) !== 0) {
      throw new UnstorableValueError(path, `timestamp(${precision}) would round ${value.toISOString()}`);
    }
  };
}

/** A day is a Date at midnight UTC: the time of day would be lost. */
const dayGuard: ColumnGuard = (value, path) => {
  if (!(value instanceof Date) || Number.isNaN(value.getTime()))
    throw new UnstorableValueError(path, 'it is not a valid Date');
  const year = value.getUTCFullYear();
  if (year < 1 || year > 9999)
    throw new UnstorableValueError(path, `the year ${year} is outside the range 1 to 9999`);
  if (value.getTime() % dayMs !== 0) {
    const reason = `date would lose the time of ${value.toISOString()}; write midnight in UTC`;
    throw new UnstorableValueError(path, reason);
  }
};

const bigintGuard: ColumnGuard = (value, path) => {
  if (typeof value !== 'bigint') throw new UnstorableValueError(path, 'it is not a bigint');
  if (BigInt.asIntN(64, value) !== value)
    throw new UnstorableValueError(path, `${value} has more than 64 bits`);
};

const realGuard: ColumnGuard = (value, path) => {
  if (shortestSingle(Math.fround(Number(value))) !== value)
    throw new UnstorableValueError(path, `real would round ${String(value)}`);
};

/** The largest integers of the types that hold fewer digits than a JavaScript number does. */
const integerMaxima: Readonly<Record<string, number>> = {
  smallint: 2 ** 15 - 1,
  smallserial: 2 ** 15 - 1,
  integer: 2 ** 31 - 1,
  serial: 2 ** 31 - 1,
};

function numberGuard(type: string): ColumnGuard {
  const integer = /int|serial/.test(type);
  const maximum = integerMaxima[type] ?? Number.MAX_SAFE_INTEGER;
  return (value, path) => {
    const number = Number(value);
    const fits = number >= -maximum - 1 && number <= maximum && Number.isSafeInteger(value);
    const exact = integer ? fits : Number.isFinite(value);
    if (!exact) throw new UnstorableValueError(path, `${type} cannot hold ${String(value)}`);
  };
}

function enumGuard(values: readonly string[]): ColumnGuard {
  return (value, path) => {
    if (typeof value !== 'string' || !values.includes(value)) {
      const shown = String(value).slice(0, 80);
      throw new UnstorableValueError(path, `'${shown}' is not one of ${values.join(', ')}`);
    }
  };
}

/** The guard of a column of characters, including one whose values the table lists. */
function characterGuard(column: PgColumn): ColumnGuard | undefined {
  const guard = lengthGuard(column);
  const { enumValues } = column;
  if (guard === undefined || enumValues === undefined || enumValues.length === 0) return guard;
  const isListed = enumGuard(enumValues);
  return (value, path) => {
    isListed(value, path);
    guard(value, path);
  };
}

function lengthGuard(column: PgColumn): ColumnGuard | undefined {
  if (is(column, PgText)) return textGuard(0, undefined);
  if (is(column, PgVarchar)) return textGuard(0, column.length);
  if (is(column, PgChar)) return textGuard(column.length ?? 1, column.length ?? 1);
  return undefined;
}

/** The guard of a column with a fixed number of numbers, or of bits. */
function coordinateGuard(column: PgColumn): ColumnGuard | undefined {
  if (is(column, PgPointTuple) || is(column, PgGeometry)) return tupleGuard(2);
  if (is(column, PgLineTuple)) return tupleGuard(3);
  if (is(column, PgPointObject) || is(column, PgGeometryObject)) return coordinatesGuard(['x', 'y']);
  if (is(column, PgLineABC)) return coordinatesGuard(['a', 'b', 'c']);
  if (is(column, PgVector) || is(column, PgHalfVector)) return tupleGuard(column.dimensions);
  if (is(column, PgBinaryVector)) return bitGuard(column.dimensions);
  return undefined;
}

function tupleGuard(length: number | undefined): ColumnGuard {
  return (value, path) => {
    const isTuple =
      Array.isArray(value) && value.every(Number.isFinite) && (length ?? value.length) === value.length;
    const count = length === undefined ? '' : `${length} `;
    if (!isTuple) throw new UnstorableValueError(path, `it is not a list of ${count}numbers`);
  };
}

function coordinatesGuard(names: readonly string[]): ColumnGuard {
  return (value, path) => {
    const fields: ReadonlyMap<string, unknown> = new Map(Object.entries(value ?? {}));
    if (!names.every((name) => Number.isFinite(fields.get(name))))
      throw new UnstorableValueError(path, `it is not an object with the numbers ${names.join(', ')}`);
  };
}

function bitGuard(length: number): ColumnGuard {
  return (value, path) => {
    if (typeof value !== 'string' || value.length !== length || !/^[01]*$/.test(value))
      throw new UnstorableValueError(path, `it is not a string of ${length} characters, each of them 0 or 1`);
  };
}

function textGuard(lengthMin: number, lengthMax: number | undefined): ColumnGuard {
  return (value, path) => {
    plainGuard(value, path);
    if (typeof value !== 'string') throw new UnstorableValueError(path, 'it is not a string');
    if (lengthMax === undefined) return;
    const length = Array.from(value).length;
    if (length < lengthMin || length > lengthMax) {
      const wanted = `${lengthMin === lengthMax ? 'exactly' : 'at most'} ${lengthMax}`;
      throw new UnstorableValueError(path, `its length is ${length}, but the column takes ${wanted}`);
    }
  };
}

/** The guard of a column that the framework does not know: it checks both the value and what the column makes of it. */
function convertedGuard(column: PgColumn): ColumnGuard {
  return (value, path) => {
    plainGuard(value, path);
    plainGuard(column.mapToDriverValue(value), path);
  };
}

/** What every column refuses: text that PostgreSQL cannot hold, and SQL in place of a value. */
const plainGuard: ColumnGuard = (value, path) => {
  if (typeof value === 'string') checkText(value, path);
  if (typeof value === 'object' && value !== null && ('queryChunks' in value || 'getSQL' in value)) {
    throw new UnstorableValueError(path, 'it is SQL; rows may only contain values');
  }
};

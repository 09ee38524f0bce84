import { UnstorableValueException, checkText, exactJson } from '@framework/core';
import {
  type PgColumn,
  PgArray,
  PgBigInt64,
  PgChar,
  PgEnumColumn,
  PgJson,
  PgJsonb,
  PgNumeric,
  PgReal,
  PgTimestamp,
  PgVarchar,
} from 'drizzle-orm/pg-core';
import { is } from 'drizzle-orm';

/** Refuses a value that would not come back from its column as it is. */
export type ColumnGuard = (value: unknown, path: string) => void;

/** The guard of a column, made once per table. */
export function columnGuard(column: PgColumn): ColumnGuard {
  if (is(column, PgArray)) return arrayGuard(columnGuard(column.baseColumn));
  if (is(column, PgNumeric)) return numericGuard(column.precision, column.scale);
  if (is(column, PgTimestamp)) return instantGuard(column.precision);
  if (is(column, PgJson) || is(column, PgJsonb)) return (value, path) => void exactJson(value, path);
  if (is(column, PgBigInt64)) return bigintGuard;
  if (is(column, PgReal)) return realGuard;
  if (is(column, PgVarchar)) return textGuard(0, column.length);
  if (is(column, PgChar)) return textGuard(column.length ?? 1, column.length ?? 1);
  if (is(column, PgEnumColumn)) return textGuard(0, undefined);
  return column.dataType === 'number' ? numberGuard(column.getSQLType()) : plainGuard;
}

function arrayGuard(elementGuard: ColumnGuard): ColumnGuard {
  return (value, path) => {
    if (!Array.isArray(value)) throw new UnstorableValueException(path, 'it is not an array');
    value.forEach((element, index) => {
      if (element !== null) elementGuard(element, `${path}[${index}]`);
    });
  };
}

function numericGuard(precision: number | undefined, scale = 0): ColumnGuard {
  return (value, path) => {
    const [, whole, fraction = ''] = /^-?0*(\d*?)(?:\.(\d*?)0*)?$/.exec(String(value)) ?? [];
    if (whole === undefined || value === '') {
      throw new UnstorableValueException(
        path,
        `'${String(value).slice(0, 40)}' is not a plain decimal; write it with toFixed()`,
      );
    }
    if (precision === undefined) return;
    if (whole.length > precision - scale || fraction.length > scale) {
      throw new UnstorableValueException(
        path,
        `numeric(${precision}, ${scale}) would round or refuse ${String(value).slice(0, 80)}`,
      );
    }
  };
}

function instantGuard(precision: number | undefined): ColumnGuard {
  return (value, path) => {
    if (!(value instanceof Date) || Number.isNaN(value.getTime())) {
      throw new UnstorableValueException(path, 'it is not a valid Date');
    }
    const year = value.getUTCFullYear();
    if (year < 1 || year > 9999)
      throw new UnstorableValueException(path, `the year ${year} is not from 1 to 9999`);
    if (precision !== undefined && value.getTime() % 10 ** Math.max(0, 3 - precision) !== 0) {
      throw new UnstorableValueException(path, `timestamp(${precision}) would round ${value.toISOString()}`);
    }
  };
}

const bigintGuard: ColumnGuard = (value, path) => {
  if (typeof value !== 'bigint') throw new UnstorableValueException(path, 'it is not a bigint');
  if (BigInt.asIntN(64, value) !== value)
    throw new UnstorableValueException(path, `${value} has more than 64 bits`);
};

const realGuard: ColumnGuard = (value, path) => {
  if (Math.fround(Number(value)) !== value)
    throw new UnstorableValueException(path, `real would round ${String(value)}`);
};

function numberGuard(type: string): ColumnGuard {
  const integer = /int|serial/.test(type);
  return (value, path) => {
    const exact = integer ? Number.isSafeInteger(value) : Number.isFinite(value);
    if (!exact) throw new UnstorableValueException(path, `${type} cannot hold ${String(value)}`);
  };
}

function textGuard(lengthMin: number, lengthMax: number | undefined): ColumnGuard {
  return (value, path) => {
    plainGuard(value, path);
    if (typeof value !== 'string' || lengthMax === undefined) return;
    const length = Array.from(value).length;
    if (length < lengthMin || length > lengthMax) {
      throw new UnstorableValueException(
        path,
        `its ${length} characters do not fit the column's ${lengthMax}`,
      );
    }
  };
}

/** What every column refuses: text that PostgreSQL cannot hold, and SQL where a value is wanted. */
const plainGuard: ColumnGuard = (value, path) => {
  if (typeof value === 'string') checkText(value, path);
  if (typeof value === 'object' && value !== null && 'queryChunks' in value) {
    throw new UnstorableValueException(path, 'it is SQL; rows hold values only');
  }
};

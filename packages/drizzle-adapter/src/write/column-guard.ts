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
  PgNumericBigInt,
  PgNumericNumber,
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
  if (is(column, PgNumeric) || is(column, PgNumericNumber) || is(column, PgNumericBigInt))
    return numericGuard(column.precision, column.scale);
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
    const [, whole = '', fraction = ''] = /^-?(\d*)(?:\.(\d*))?$/.exec(String(value)) ?? [];
    if (whole === '' && fraction === '') {
      throw new UnstorableValueException(
        path,
        `'${String(value).slice(0, 40)}' is not a plain decimal; write it with toFixed()`,
      );
    }
    if (precision === undefined) return;
    const beyond = whole.slice(0, Math.max(0, whole.length - (precision - scale))) + fraction.slice(scale);
    if (/[1-9]/.test(beyond)) {
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
    // Drizzle reads the text of a timestamp by `new Date`, which takes the years 1 to 99 for those of 1900 or 2000.
    if (year < 100 || year > 9999)
      throw new UnstorableValueException(path, `the year ${year} is not from 100 to 9999`);
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
  if (readAsReal(Number(value)) !== value)
    throw new UnstorableValueException(path, `real would round ${String(value)}`);
};

/** PostgreSQL writes a single with the fewest digits that tell it from its neighbours, at most 9. */
function readAsReal(value: number): number {
  const single = Math.fround(value);
  for (let digits = 1; digits < 9; digits++) {
    const shorter = Number(single.toPrecision(digits));
    if (Math.fround(shorter) === single) return shorter;
  }
  return Number(single.toPrecision(9));
}

/** The largest integers of the types that hold fewer than a JavaScript number does. */
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

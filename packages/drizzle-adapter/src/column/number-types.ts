import { UnstorableValueError } from '@framework/core/adapter';

import { type ValueType, shown } from './value-type.js';

/** The integers of a type of so many bits, of those that a number holds exactly. */
export function integerType(cast: string, bits: number): ValueType {
  const limit = Math.min(2 ** (bits - 1), 2 ** 53);
  return {
    cast,
    order: 'decimal',
    write: (value, path) => {
      if (typeof value === 'number' && Number.isSafeInteger(value) && value >= -limit && value < limit)
        return value;
      throw new UnstorableValueError(path, `${cast} cannot hold ${shown(value)}`);
    },
    read: (sent) => {
      const number = Number(sent);
      if (Number.isSafeInteger(number)) return number;
      throw new RangeError(`${shown(sent)} is beyond 2^53: declare the column in the mode bigint`);
    },
  };
}

/** The integers of 64 bits. */
export const bigintType: ValueType = {
  cast: 'bigint',
  order: 'decimal',
  write: (value, path) => {
    if (typeof value !== 'bigint') throw new UnstorableValueError(path, 'it is not a bigint');
    if (BigInt.asIntN(64, value) === value) return String(value);
    throw new UnstorableValueError(path, `${value} has more than 64 bits`);
  },
  read: (sent) => BigInt(sent as string),
};

/** How many digits a decimal without a precision can have before and after the point. */
const wholeDigitsMax = 131_072;
const fractionDigitsMax = 16_383;
/** More digits than a number is sure to hold, and digits that it writes in another way. */
const unusualNumber = /[\d.]{16}|\.\d*0(?!\d)|0\.0{6}/;

/** Decimals as texts, as numbers, or, without decimal places, as bigints. */
export function numericType(
  mode: 'string' | 'number' | 'bigint',
  precision: number | undefined,
  scale = 0,
): ValueType {
  const places = precision === undefined ? fractionDigitsMax : scale;
  const wholeMax = precision === undefined ? wholeDigitsMax : precision - scale;
  const type: ValueType = {
    cast: 'numeric',
    order: 'decimal',
    write: (value, path) => {
      if (typeof value !== mode) throw new UnstorableValueError(path, `it is not a ${mode}`);
      const [, sign = '', whole = '', fraction = ''] = /^(-?)(\d*)(?:\.(\d*))?$/.exec(String(value)) ?? [];
      if (whole === '' && fraction === '')
        throw new UnstorableValueError(
          path,
          `'${shown(value)}' is not a plain decimal; write it with toFixed()`,
        );
      const digits = whole.replace(/^0+/, '');
      if (digits.length > wholeMax || /[1-9]/.test(fraction.slice(places)))
        throw new UnstorableValueError(path, `the column would round or refuse ${shown(value)}`);
      const decimals =
        precision === undefined ? fraction.slice(0, places) : fraction.slice(0, places).padEnd(places, '0');
      const text = (digits || '0') + (decimals && `.${decimals}`);
      return /[1-9]/.test(text) ? sign + text : text;
    },
    read: numericReaders[mode],
  };
  return mode === 'number' ? { ...type, inexact: unusualNumber } : type;
}

const numericReaders: Readonly<Record<'string' | 'number' | 'bigint', ValueType['read']>> = {
  string: (sent) => {
    if (/[IN]/.test(String(sent))) throw notFinite(sent);
    return sent;
  },
  number: finite,
  bigint: (sent) => BigInt(sent as string),
};

/** Numbers of double precision. */
export const doubleType: ValueType = {
  cast: 'double precision',
  order: 'number',
  write: (value, path) => {
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    throw new UnstorableValueError(path, `double precision cannot hold ${shown(value)}`);
  },
  read: finite,
};

/** Single precision holds every decimal of so many digits between these numbers, and every integer up to 2^24. */
const singleDigits = 6;
const singleMin = 1.1755e-38;
const singleMax = 3.40282e38;

/**
 * Numbers of single precision. The database returns the shortest decimal that distinguishes a number from its neighbours, which is the
 * number that was sent if that has at most six digits. What has more digits was written by another program.
 */
export const realType: ValueType = {
  cast: 'real',
  order: 'number',
  inexact: /(?:\d\.?){7}|e-[34]\d/,
  write: (value, path) => {
    if (typeof value === 'number' && isSingle(value, Math.abs(value))) return value;
    throw new UnstorableValueError(
      path,
      `real keeps ${singleDigits} digits, and would round or refuse ${shown(value)}: declare it as double precision`,
    );
  },
  read: finite,
};

function isSingle(value: number, size: number): boolean {
  if (Number.isInteger(value) && size <= 2 ** 24) return true;
  if (size < singleMin || size > singleMax || Number(value.toPrecision(singleDigits)) !== value) return false;
  // Halfway between two numbers of single precision, the database writes another decimal for the even one.
  const single = Math.fround(value);
  const other = single + 2 * (value - single);
  return single === value || Math.fround(other) !== other;
}

function finite(sent: unknown): number {
  const number = Number(sent);
  if (Number.isFinite(number)) return number;
  throw notFinite(sent);
}

function notFinite(sent: unknown): RangeError {
  return new RangeError(`${shown(sent)} is not a finite number`);
}

import { is } from 'drizzle-orm';
import {
  PgBigInt53,
  PgBigInt64,
  PgBoolean,
  PgChar,
  type PgColumn,
  PgDoublePrecision,
  PgEnumColumn,
  PgInteger,
  PgJson,
  PgJsonb,
  PgNumeric,
  PgNumericBigInt,
  PgNumericNumber,
  PgReal,
  PgSmallInt,
  PgText,
  PgTimestamp,
  PgUUID,
  PgVarchar,
} from 'drizzle-orm/pg-core';

/** Gives what a read of a column will give, for a value that was sent and is not committed yet. */
export type StagedValue = (sent: unknown) => unknown;

const sameAsSent = [
  PgUUID,
  PgText,
  PgVarchar,
  PgChar,
  PgEnumColumn,
  PgBoolean,
  PgSmallInt,
  PgInteger,
  PgBigInt53,
  PgBigInt64,
  PgReal,
  PgDoublePrecision,
  PgJson,
  PgJsonb,
  PgNumericNumber,
  PgNumericBigInt,
];

/** How a column's value reads before it is written; `undefined` for columns of which only the database knows. */
export function stagedValue(column: PgColumn): StagedValue | undefined {
  if (column.generated !== undefined || column.generatedIdentity !== undefined) return undefined;
  const read: StagedValue = (sent) => (sent === null ? null : column.mapFromDriverValue(sent));
  if (is(column, PgNumeric)) {
    // Without a precision the database knows no scale either, and with one alone it is 0.
    const scale = column.precision === undefined ? undefined : Math.max(0, column.scale ?? 0);
    return (sent) => (typeof sent === 'string' ? decimal(sent, scale) : sent);
  }
  if (is(column, PgTimestamp)) return column.withTimezone ? read : undefined;
  return sameAsSent.some((type) => is(column, type)) ? read : undefined;
}

/** A decimal as PostgreSQL writes it: without needless zeros in front, with all digits of its scale behind. */
function decimal(sent: string, scale: number | undefined): string {
  const [, sign = '', whole = '', fraction = ''] = /^(-?)0*(\d*)(?:\.(\d*))?$/.exec(sent) ?? [];
  const digits = scale === undefined ? fraction : fraction.slice(0, scale).padEnd(scale, '0');
  const text = digits === '' ? whole || '0' : `${whole || '0'}.${digits}`;
  return /[1-9]/.test(text) ? sign + text : text;
}

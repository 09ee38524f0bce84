import { is } from 'drizzle-orm';
import {
  PgArray,
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

import { PgValueColumn } from '../model-columns.js';

/** The types whose values can be written in a group: by Drizzle's names for them, their names in a cast. */
const castTypes: Readonly<Record<string, string>> = {
  uuid: 'uuid',
  text: 'text',
  varchar: 'varchar',
  // In a cast, `char` would mean `char(1)`.
  char: 'bpchar',
  boolean: 'boolean',
  smallint: 'smallint',
  integer: 'integer',
  bigint: 'bigint',
  smallserial: 'smallint',
  serial: 'integer',
  bigserial: 'bigint',
  real: 'real',
  'double precision': 'double precision',
  numeric: 'numeric',
  json: 'json',
  jsonb: 'jsonb',
  date: 'date',
  time: 'time',
  'time with time zone': 'timetz',
  timestamp: 'timestamp',
  'timestamp with time zone': 'timestamptz',
  interval: 'interval',
  inet: 'inet',
  cidr: 'cidr',
  macaddr: 'macaddr',
  macaddr8: 'macaddr8',
};

/**
 * The type to which a value of a column is cast when many rows are sent as arrays of strings; `undefined` for types that
 * the framework does not know.
 *
 * It contains no length and no scale: the column itself refuses or rounds, as it does for a single parameter.
 */
export function groupType(column: PgColumn): string | undefined {
  if (is(column, PgArray)) {
    const base = groupType(column.baseColumn);
    return base === undefined ? undefined : `${base}[]`;
  }
  if (is(column, PgEnumColumn)) {
    const { schema, enumName } = column.enum;
    return schema === undefined ? quoted(enumName) : `${quoted(schema)}.${quoted(enumName)}`;
  }
  return castTypes[column.getSQLType().replace(/ ?\([^)]*\)/, '')];
}

/** The declaration of a column apart from its type, to be compared with that in the database. */
export function declaredColumn(column: PgColumn): DeclaredColumn {
  const type = column.getSQLType();
  const [, given = type === 'char' ? '1' : null] = /\(([^)]*)\)/.exec(type) ?? [];
  const modifier = given?.replaceAll(' ', '') ?? null;
  return {
    // The database adds the scale 0 if none was given.
    modifier: type.startsWith('numeric') && modifier?.includes(',') === false ? `${modifier},0` : modifier,
    notNull: column.notNull,
    labels: is(column, PgEnumColumn) ? column.enumValues : null,
  };
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** The declaration of a column in Drizzle's table, apart from its type. */
export interface DeclaredColumn {
  /** The type's length, precision or scale, as the database writes it. */
  readonly modifier: string | null;
  readonly notNull: boolean;
  /** The values of an enum; null for any other type. */
  readonly labels: readonly string[] | null;
}

/** Returns what a read of a column will return, for a value that was sent and is not committed yet. */
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

/** Tells how a column's value will be read, before it is written; `undefined` for columns whose values only the database knows. */
export function stagedValue(column: PgColumn): StagedValue | undefined {
  if (column.generated !== undefined || column.generatedIdentity !== undefined) return undefined;
  if (is(column, PgValueColumn)) return stagedInstance(column);
  const read: StagedValue = (sent) => (sent === null ? null : column.mapFromDriverValue(sent));
  if (is(column, PgNumeric)) {
    // Without a precision there is no scale in the database, either, and with only a precision the scale is 0.
    const scale = column.precision === undefined ? undefined : Math.max(0, column.scale ?? 0);
    return (sent) => (typeof sent === 'string' ? decimal(sent, scale) : sent);
  }
  if (is(column, PgTimestamp)) return column.withTimezone ? read : undefined;
  return sameAsSent.some((type) => is(column, type)) ? read : undefined;
}

function stagedInstance(column: PgValueColumn): StagedValue | undefined {
  const stagedText = stagedValue(column.base);
  return stagedText && ((sent) => (sent === null ? null : column.mapFromDriverValue(stagedText(sent))));
}

/** A decimal as PostgreSQL writes it: without unneeded leading zeros, and with all digits of its scale. */
function decimal(sent: string, scale: number | undefined): string {
  const [, sign = '', whole = '', fraction = ''] = /^(-?)0*(\d*)(?:\.(\d*))?$/.exec(sent) ?? [];
  const digits = scale === undefined ? fraction : fraction.slice(0, scale).padEnd(scale, '0');
  const text = digits === '' ? whole || '0' : `${whole || '0'}.${digits}`;
  return /[1-9]/.test(text) ? sign + text : text;
}

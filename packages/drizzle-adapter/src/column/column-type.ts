import { InvariantViolationError } from '@framework/core';
import { UnstorableValueError } from '@framework/core/adapter';
import { getTableColumns, is } from 'drizzle-orm';
import {
  PgArray,
  type PgColumn,
  PgEnumColumn,
  PgEnumObjectColumn,
  type PgTable,
  getTableConfig,
} from 'drizzle-orm/pg-core';
import { parse } from 'postgres-array';

import { PgValueColumn } from '../model-columns.js';
import { bigintType, doubleType, integerType, numericType, realType } from './number-types.js';
import {
  booleanType,
  bytesType,
  jsonType,
  limitedTextType,
  listedType,
  textType,
  uuidType,
} from './text-types.js';
import { dateType, timeType, timestampType } from './time-types.js';
import type { ValueType } from './value-type.js';

/** A column of a table, with its key in the table's declaration. */
export interface TableColumn {
  readonly key: string;
  readonly column: PgColumn;
  readonly type: ValueType;
}

/**
 * The columns of a table with their types.
 *
 * @throws InvariantViolationError `invariant-violation` when a column has a type that the framework does not store exactly
 */
export function tableColumns(table: PgTable): readonly TableColumn[] {
  const columns = Object.entries(getTableColumns(table) as Record<string, PgColumn>);
  return columns.map(([key, column]) => {
    const type = valueType(column);
    if (type !== undefined) return { key, column, type };
    throw new InvariantViolationError(
      `Column ${getTableConfig(table).name}.${column.name} has the type ${column.getSQLType()}, which the framework does not store ` +
        `exactly: change it to a supported type, such as text or jsonb, and convert its values in toRow and toModel; or leave it out ` +
        `of the table that the repository receives. Supported are ${supported}`,
    );
  });
}

/** What the message about a column of another type lists. */
const supported =
  'text, varchar, char, uuid, boolean, smallint, integer, bigint, the serial types, numeric with a scale from 0 to its precision ' +
  '(and 0 as bigint), real, double precision, date, time, timestamp with and without time zone, json, jsonb, enums, a custom type ' +
  'bytea, the columns of the framework, and arrays of one dimension of text, varchar, uuid, boolean, integers and enums';

/** A column of Drizzle as its type needs it. */
interface Declaration {
  /** What Drizzle calls the type of its values in JavaScript. */
  readonly dataType: string;
  readonly length?: number;
  readonly precision?: number;
  readonly scale?: number;
}

/** The types of Drizzle's columns, by their SQL types without length, precision and scale. */
const types: Readonly<Record<string, (declaration: Declaration) => ValueType | undefined>> = {
  text: () => textType,
  varchar: ({ length }) => limitedTextType('varchar', length),
  // In a cast, `char` would mean `char(1)`.
  char: ({ length = 1 }) => limitedTextType('bpchar', length),
  uuid: () => uuidType,
  boolean: () => booleanType,
  smallint: () => integerType('smallint', 16),
  smallserial: () => integerType('smallint', 16),
  integer: () => integerType('integer', 32),
  serial: () => integerType('integer', 32),
  bigint: int8Type,
  bigserial: int8Type,
  numeric: ({ dataType, precision, scale = 0 }) => {
    const isUnusual =
      precision !== undefined && (scale < 0 || scale > (dataType === 'bigint' ? 0 : precision));
    if (isUnusual) return undefined;
    return numericType(dataType as 'string' | 'number' | 'bigint', precision, scale);
  },
  real: () => realType,
  'double precision': () => doubleType,
  date: ({ dataType }) => dateType(dataType as 'string' | 'date'),
  time: ({ precision }) => timeType(precision),
  timestamp: ({ dataType, precision }) => timestampType(dataType as 'string' | 'date', false, precision),
  'timestamp with time zone': ({ dataType, precision }) =>
    timestampType(dataType as 'string' | 'date', true, precision),
  json: () => jsonType('json'),
  jsonb: () => jsonType('jsonb'),
};

function int8Type({ dataType }: Declaration): ValueType {
  return dataType === 'bigint' ? bigintType : integerType('bigint', 64);
}

/** The type of a column; `undefined` if it is not supported. */
function valueType(column: PgColumn): ValueType | undefined {
  if (is(column, PgValueColumn)) return mappedType(column);
  if (is(column, PgArray)) return arrayType(column.baseColumn);
  if (column.dataType === 'custom') return column.getSQLType() === 'bytea' ? bytesType(column) : undefined;
  if (isEnum(column)) {
    const { schema, enumName } = column.enum;
    const cast = schema === undefined ? quoted(enumName) : `${quoted(schema)}.${quoted(enumName)}`;
    return listedType({ ...textType, cast }, column.enumValues);
  }
  const type = types[baseType(column)]?.(column);
  return type && column.enumValues?.length ? listedType(type, column.enumValues) : type;
}

/** The type of a column whose values are instances of a class, which are stored as the texts of one of Drizzle's columns. */
function mappedType(column: PgValueColumn): ValueType | undefined {
  const type = valueType(column.base);
  return (
    type && {
      ...type,
      write: (value, path) => {
        if (value instanceof column.valueClass) return type.write(column.mapToDriverValue(value), path);
        throw new UnstorableValueError(path, `it is not a ${column.valueClass.name}`);
      },
      read: (sent) => column.mapFromDriverValue(type.read(sent)),
    }
  );
}

const itemTypes = /^(?:text|varchar|uuid|boolean|smallint|integer|bigint)$/;

/** The type of lists, whose items may be null. */
function arrayType(base: PgColumn): ValueType | undefined {
  const item = isEnum(base) || itemTypes.test(baseType(base)) ? valueType(base) : undefined;
  if (item === undefined) return undefined;
  return {
    cast: `${item.cast}[]`,
    write: (value, path) => {
      if (!Array.isArray(value)) throw new UnstorableValueError(path, 'it is not an array');
      // Goes by index, because forEach would skip holes.
      const items = Array.from(value as unknown[], (each, index) => {
        if (each === null) return 'NULL';
        if (each === undefined)
          throw new UnstorableValueError(`${path}[${index}]`, 'it is undefined; write null');
        return `"${String(item.write(each, `${path}[${index}]`)).replace(/[\\"]/g, '\\$&')}"`;
      });
      return `{${items.join()}}`;
    },
    read: (sent) => {
      const items: readonly unknown[] = parse(String(sent));
      return items.map((each) => {
        if (Array.isArray(each)) throw new RangeError('it is an array of several dimensions');
        return each === null ? null : item.read(each);
      });
    },
  };
}

/** Whether a column has a type of listed texts. */
export function isEnum(column: PgColumn): column is PgEnumColumn<never> | PgEnumObjectColumn<never> {
  return is(column, PgEnumColumn) || is(column, PgEnumObjectColumn);
}

/** The SQL type of a column without length, precision and scale. */
export function baseType(column: PgColumn): string {
  return column.getSQLType().replace(/ ?\([^)]*\)/, '');
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

/** The declaration of a column apart from its type, to be compared with that in the database. */
export function declaredColumn(column: PgColumn): DeclaredColumn {
  const type = column.getSQLType();
  const [, given = type === 'char' ? '1' : null] = /\(([^)]*)\)/.exec(type) ?? [];
  const modifier = given?.replaceAll(' ', '') ?? null;
  return {
    // The database adds the scale 0 if none was given.
    modifier: type.startsWith('numeric') && modifier?.includes(',') === false ? `${modifier},0` : modifier,
    notNull: column.notNull,
    labels: isEnum(column) ? column.enumValues : null,
  };
}

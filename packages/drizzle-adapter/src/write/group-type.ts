import { is } from 'drizzle-orm';
import { PgArray, type PgColumn, PgEnumColumn } from 'drizzle-orm/pg-core';

/** Types whose values go into a group, by Drizzle's names for them, and what they are called in a cast. */
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
 * The type to which a value of a column is cast, when many rows come as arrays of texts; `undefined` for types that the
 * framework does not know.
 *
 * It names no length and no scale: the column itself refuses or rounds, as it does for a parameter of its own.
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

/** What a column is declared as beside its type, to be compared with what the database has. */
export function declaredColumn(column: PgColumn): DeclaredColumn {
  const type = column.getSQLType();
  const [, given = type === 'char' ? '1' : null] = /\(([^)]*)\)/.exec(type) ?? [];
  const modifier = given?.replaceAll(' ', '') ?? null;
  return {
    // The database writes a scale that was not given.
    modifier: type.startsWith('numeric') && modifier?.includes(',') === false ? `${modifier},0` : modifier,
    notNull: column.notNull,
    labels: is(column, PgEnumColumn) ? column.enumValues : null,
  };
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** What Drizzle's table says of a column beside its type. */
export interface DeclaredColumn {
  /** The type's length, precision or scale, as the database writes it. */
  readonly modifier: string | null;
  readonly notNull: boolean;
  /** Of an enum. */
  readonly labels: readonly string[] | null;
}

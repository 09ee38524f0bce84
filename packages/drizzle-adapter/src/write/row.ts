import type { StagedValue } from './staged-value.js';

/** Which columns of a table a row gives values for; one object for all rows of the same columns. */
export interface RowShape {
  /** Differs between shapes, also of other tables. */
  readonly key: string;
  /** The table's name, quoted, with its schema. */
  readonly table: string;
  /** The columns' names, quoted. */
  readonly columns: readonly string[];
  /** The position of the id among the columns. */
  readonly idIndex: number;
  /** The version column's name, quoted. */
  readonly versionColumn: string;
  /** The columns' types, to which texts of them are cast; `undefined` when rows of this shape cannot be in a group. */
  readonly casts: readonly string[] | undefined;
  /** How the columns' values read before they are written; `undefined` where only the database knows the whole row. */
  readonly staged: readonly StagedValue[] | undefined;
  /** What the columns' values were checked for. */
  readonly declared: readonly DeclaredColumn[];
}

/** What Drizzle's table says of a column beside its type. */
export interface DeclaredColumn {
  /** The type's length, precision or scale, as the database writes it. */
  readonly modifier: string | null;
  readonly notNull: boolean;
  /** Of an enum. */
  readonly labels: readonly string[] | null;
}

/** A row as it is sent: values in the order of its shape's columns. */
export interface Row {
  readonly shape: RowShape;
  readonly values: readonly unknown[];
}

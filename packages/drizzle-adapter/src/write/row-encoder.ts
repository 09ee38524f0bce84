import { InvariantViolationError, Model } from '@framework/core';
import { type AnyEntity, UnstorableValueError } from '@framework/core/adapter';
import { type PgColumn, type PgTable, getTableConfig } from 'drizzle-orm/pg-core';

import {
  type DeclaredColumn,
  type TableColumn,
  declaredColumn,
  tableColumns,
} from '../column/column-type.js';
import { RowDecoder } from '../column/row-decoder.js';
import { FormOfVersion, formOf, isUnchanged } from '../column/stored-form.js';
import type { Sent } from '../column/value-type.js';

/** The columns for which a row has values; rows with the same columns share one object. */
export interface RowShape {
  /** Unique among the shapes of all tables. */
  readonly key: string;
  /** The table's name, quoted, with its schema. */
  readonly table: string;
  /** The columns' keys in the table's declaration. */
  readonly fields: readonly string[];
  /** The columns' names, quoted. */
  readonly columns: readonly string[];
  /** The position of the id among the columns. */
  readonly idIndex: number;
  /** The version column's name, quoted. */
  readonly versionColumn: string;
  /** The types to which the columns' texts are cast when a group is written. */
  readonly casts: readonly string[];
  /** Whether it has all columns of the table. If not, only the database knows the whole row. */
  readonly isWhole: boolean;
  /** The column declarations that the values were checked against. */
  readonly declared: readonly DeclaredColumn[];
}

/** A row in the form in which it is sent: the values in the order of its shape's columns. */
export interface Row {
  readonly shape: RowShape;
  readonly values: readonly (Sent | null)[];
}

type Fields = Readonly<Record<string, unknown>>;

interface ColumnEncoder extends TableColumn {
  /** The column's name, quoted. */
  readonly name: string;
  /** Names the column in errors. */
  readonly path: string;
}

let shapeCount = 0;

/** Encodes rows of one table: values as the driver sends them, in a fixed order of columns. */
export class RowEncoder {
  readonly #modelName: string;
  readonly #table: string;
  readonly #columns: readonly ColumnEncoder[];
  /** The keys of all columns, including those that the database generates. */
  readonly #keys: readonly string[];
  readonly #decoder: RowDecoder;
  readonly #shapes = new Map<string, RowShape>();

  /**
   * @throws InvariantViolationError `invariant-violation` when the table lacks a column `id`, `state` or `version`, or
   * has a column of a type that is not supported
   */
  constructor(modelName: string, table: PgTable) {
    const { schema, name } = getTableConfig(table);
    this.#modelName = modelName;
    this.#table = schema === undefined ? quoted(name) : `${quoted(schema)}.${quoted(name)}`;
    const columns = tableColumns(table);
    for (const key of ['id', 'state', 'version']) {
      if (!columns.some((column) => column.key === key))
        throw new InvariantViolationError(`Table ${name} has no column ${key}: add entityColumns`);
    }
    this.#keys = columns.map(({ key }) => key);
    this.#decoder = new RowDecoder(table, columns);
    this.#columns = columns
      .filter(({ column }) => !isGenerated(column))
      .map((each) => ({ ...each, name: quoted(each.column.name), path: `${modelName}.${each.key}` }));
  }

  /**
   * Encodes a row that will be added or updated. If a column's key is absent, the database fills the column of an added
   * row, and leaves that of an updated row unchanged. `undefined` means the same for a column with a default, and null
   * for any other.
   *
   * @param isForTable whether it will be written to the table: then columns without a value get that of their `$defaultFn` or
   * `$onUpdate`, and an update leaves values as they are stored if the model has not changed them
   * @throws InvariantViolationError `invariant-violation` when the row's id or version differs from the model's
   * @throws UnstorableValueError `unstorable-value` when a value would not be read back unchanged
   */
  encode(row: object, model: AnyEntity, isForTable: boolean): Row {
    this.#assertRowOf(model, row as Fields);
    return this.#rowOf(row as Fields, model, { isWhole: false, isForTable });
  }

  /**
   * Makes the row of a model whose fields are the columns. In an update, `undefined` means null, because null is read as
   * `undefined`.
   *
   * @param isForTable as for {@link encode}
   * @throws InvariantViolationError `invariant-violation` when a field has no column: it would be lost
   * @throws UnstorableValueError `unstorable-value` when a value would not be read back unchanged
   */
  encodeModel(model: AnyEntity, isForTable: boolean): Row {
    // The events of a model go into the log.
    for (const field in model)
      if (!this.#keys.includes(field) && !(field === 'events' && model instanceof Model))
        throw this.#withoutColumn(field);
    return this.#rowOf(model as unknown as Fields, model, { isWhole: true, isForTable });
  }

  #withoutColumn(field: string): InvariantViolationError {
    return new InvariantViolationError(
      `${this.#modelName}.${field} has no column in ${this.#table}: add one, or pass toRow to the repository`,
    );
  }

  #rowOf(
    row: Fields,
    model: AnyEntity,
    { isWhole, isForTable }: { readonly isWhole: boolean; readonly isForTable: boolean },
  ): Row {
    const kind = model.version === 1 ? 'add' : 'update';
    const form = kind === 'update' && isForTable ? formOf(model) : undefined;
    const next = form || kind === 'add' ? new FormOfVersion() : undefined;
    const values: (Sent | null)[] = [];
    let present = '';
    for (const encoder of this.#columns) {
      const { key, column } = encoder;
      const given = row[key];
      const value = given === undefined && isForTable ? declaredValue(column, kind) : given;
      const isCleared = isWhole && kind === 'update' && !column.notNull && form?.left.has(key) !== true;
      const mayBeAbsent =
        (column.hasDefault && !isCleared) || (!(key in row) && (kind === 'update' || !column.notNull));
      const omitted = value === undefined && mayBeAbsent;
      present += omitted ? '0' : '1';
      if (omitted && isWhole) next?.leave(key);
      if (omitted) continue;
      const text = form?.texts.get(key);
      if (text === undefined || !isUnchanged(encoder.type.read(text), value ?? null)) {
        values.push(encodeValue(encoder, value));
      } else {
        values.push(text);
        next?.keep(key, text);
      }
    }
    if (isForTable) next?.record(model);
    return { shape: this.#shape(present), values };
  }

  /** The id and version guard the row, and the executor relies on them, so a mapping must not change them. */
  #assertRowOf({ id, version }: AnyEntity, row: Fields): void {
    const rowId = String(row['id']);
    if (rowId !== id.value) throw this.#foreign('id', rowId, id.value);
    const rowVersion = String(row['version']);
    if (rowVersion !== String(version)) throw this.#foreign('version', rowVersion, String(version));
  }

  #foreign(field: string, given: string, wanted: string): InvariantViolationError {
    return new InvariantViolationError(
      `toRow returns ${this.#modelName} ${field} ${given.slice(0, 80)}, but the model has ${wanted}: pass it on unchanged`,
    );
  }

  /** The row as it will be read back once it is written; `undefined` if only the database knows that. */
  decode({ shape, values }: Row): Record<string, unknown> | undefined {
    return shape.isWhole ? this.#decoder.decode(values) : undefined;
  }

  #shape(present: string): RowShape {
    let shape = this.#shapes.get(present);
    if (shape === undefined) {
      shape = this.#newShape(this.#columns.filter((_column, index) => present[index] === '1'));
      this.#shapes.set(present, shape);
    }
    return shape;
  }

  #newShape(columns: readonly ColumnEncoder[]): RowShape {
    return {
      key: `t${shapeCount++}`,
      table: this.#table,
      fields: columns.map(({ key }) => key),
      columns: columns.map(({ name }) => name),
      idIndex: columns.findIndex(({ key }) => key === 'id'),
      versionColumn: columns.find(({ key }) => key === 'version')?.name ?? '',
      casts: columns.map(({ type }) => type.cast),
      isWhole: columns.length === this.#keys.length,
      declared: columns.map(({ column }) => declaredColumn(column)),
    };
  }
}

function encodeValue({ column, type, path }: ColumnEncoder, value: unknown): Sent | null {
  if (value !== null && value !== undefined) return type.write(value, path);
  if (column.notNull) throw new UnstorableValueError(path, 'it is null, but its column is declared not null');
  return null;
}

/** What the functions of a column's declaration give it when a row has no value, as Drizzle calls them. */
function declaredValue({ defaultFn, onUpdateFn }: PgColumn, kind: 'add' | 'update'): unknown {
  return kind === 'add' && defaultFn !== undefined ? defaultFn() : onUpdateFn?.();
}

/** Whether the database generates every value of a column, and accepts none. */
function isGenerated({ generated, generatedIdentity }: PgColumn): boolean {
  return generated !== undefined || generatedIdentity?.type === 'always';
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

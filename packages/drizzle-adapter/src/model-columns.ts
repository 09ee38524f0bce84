import { Id, type ModelClass, ShardedId } from '@framework/core';
import type { AnyEntity } from '@framework/core/adapter';
import { entityKind } from 'drizzle-orm';
import {
  PgColumn,
  PgColumnBuilder,
  type PgTable,
  bigint,
  numeric,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core';

/**
 * The columns that the table of every entity has; spread them into `pgTable`. The id is a {@link shardedId}: replace it if the
 * entity has another kind of id.
 *
 * ```ts
 * pgTable('tags', { ...entityColumns(Tag), label: text('label').notNull() })
 * ```
 */
export function entityColumns<M extends AnyEntity>(model: ModelClass<M>) {
  return {
    id: shardedId('id', model).primaryKey(),
    state: text('state').$type<M['state']>().notNull(),
    version: bigint('version', { mode: 'number' }).notNull(),
  };
}

/** The columns that the table of every model has; spread them into `pgTable`, like {@link entityColumns}. */
export function modelColumns<M extends AnyEntity>(model: ModelClass<M>) {
  return {
    ...entityColumns(model),
    createdDate: timestamp('created_date', { withTimezone: true }).notNull(),
    updatedDate: timestamp('updated_date', { withTimezone: true }).notNull(),
  };
}

/** A column of type `uuid` whose values are sharded ids of a model. */
export function shardedId<Name extends string, M>(
  name: Name,
  model: ModelClass<M>,
): ValueColumnBuilder<Name, ShardedId<M>> {
  return valueColumn(name, {
    base: uuid(name),
    valueClass: ShardedId,
    read: (sent) => ShardedId.of(model, sent),
    write: ({ value }) => value,
  });
}

/** A column of type `text` whose values are ids of a model that come from another system. */
export function textId<Name extends string, M>(
  name: Name,
  model: ModelClass<M>,
): ValueColumnBuilder<Name, Id<M>> {
  return valueColumn(name, {
    base: text(name),
    valueClass: Id,
    read: (sent) => Id.of(model, sent),
    write: ({ value }) => value,
  });
}

/**
 * A column of type `numeric` whose values are exact decimals, instances of a class such as `Big` of big.js, `BigNumber` or
 * `Decimal`. The class is constructed from the digits as text, and writes them with `toFixed()`.
 *
 * ```ts
 * balance: bigDecimal('balance', Big, { precision: 38, scale: 18 }).notNull()
 * ```
 */
export function bigDecimal<Name extends string, D extends { toFixed(): string }>(
  name: Name,
  decimalClass: new (digits: string) => D,
  config: { readonly precision: number; readonly scale?: number },
): ValueColumnBuilder<Name, D> {
  return valueColumn(name, {
    base: numeric(name, config),
    valueClass: decimalClass,
    read: (sent) => new decimalClass(sent),
    write: (value) => value.toFixed(),
  });
}

/** A table that a repository can store models in: see `entityColumns` and `modelColumns`. */
export type ModelTable = PgTable & {
  readonly id: PgColumn;
  readonly state: PgColumn;
  readonly version: PgColumn;
};

/** How the values of a class are written as the texts of one of Drizzle's columns, and read from them. */
interface ValueMapping<Value> {
  readonly base: object;
  readonly valueClass: ValueClass;
  readonly read: (sent: string) => Value;
  readonly write: (value: Value) => string;
}

/** Recognises the instances of a class, even of one with a private constructor. */
interface ValueClass {
  readonly name: string;
  [Symbol.hasInstance](value: unknown): boolean;
}

/** Declares a column whose values are instances of a class. */
export type ValueColumnBuilder<Name extends string, Value> = PgColumnBuilder<{
  name: Name;
  dataType: 'custom';
  columnType: 'PgValueColumn';
  data: Value;
  driverParam: string;
  enumValues: undefined;
}>;

function valueColumn<Name extends string, Value>(
  name: Name,
  mapping: ValueMapping<Value>,
): ValueColumnBuilder<Name, Value> {
  return new PgValueColumnBuilder(name, mapping as unknown as ValueMapping<never>) as never;
}

class PgValueColumnBuilder extends PgColumnBuilder {
  static override readonly [entityKind]: string = 'PgValueColumnBuilder';
  readonly #mapping: ValueMapping<never>;

  constructor(name: string, mapping: ValueMapping<never>) {
    super(name, 'custom', 'PgValueColumn');
    this.#mapping = mapping;
  }

  /** Called by Drizzle, although its types do not declare it. */
  build(table: PgTable): PgColumn {
    return new PgValueColumn(table, this.config, this.#mapping);
  }
}

/** A column whose values are instances of a class. It stores them as text in one of Drizzle's own columns. */
export class PgValueColumn extends PgColumn {
  static override readonly [entityKind]: string = 'PgValueColumn';
  /** The column as Drizzle alone would declare it: it determines which values fit, and their order. */
  readonly base: PgColumn;
  /** Not `#private`: Drizzle reads columns through proxies. */
  readonly mapping: ValueMapping<unknown>;

  constructor(table: PgTable, config: PgColumnBuilder['config'], mapping: ValueMapping<never>) {
    super(table, config);
    this.base = (mapping.base as unknown as { build(of: PgTable): PgColumn }).build(table);
    this.mapping = mapping as unknown as ValueMapping<unknown>;
  }

  /** The class of its values. */
  get valueClass(): ValueClass {
    return this.mapping.valueClass;
  }

  getSQLType(): string {
    return this.base.getSQLType();
  }

  override mapFromDriverValue(sent: unknown): unknown {
    return this.mapping.read(String(sent));
  }

  override mapToDriverValue(value: unknown): unknown {
    return this.mapping.write(value);
  }
}

import {
  type DatabaseRegistry,
  type Id,
  InvariantViolationError,
  type ModelClass,
  type New,
  type NewEntity,
  NotUniqueError,
  type Page,
  type PageRequest,
  type Repository,
  ShardIdentifier,
  type ShardingStrategy,
} from '@framework/core';
import {
  type AnyEntity,
  type ModelJsonCodec,
  type ModelMapper,
  type ModelRead,
  type ModelSource,
  type PagePlace,
  RepositoryReads,
  type TransactionManager,
  modelNameOf,
  pageSize,
  setRead,
} from '@framework/core/adapter';
import { type SQL, getTableColumns } from 'drizzle-orm';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import type { PgColumn } from 'drizzle-orm/pg-core';

import { type PgTransactions, pgManager } from './pg-transaction-manager.js';
import { formOfRow } from './column/stored-form.js';
import type { ModelTable } from './model-columns.js';
import { RowJson } from './write/row-json.js';
import { PgModelSource, type PlacedRow, TableReader, readBy } from './read/table-reader.js';
import { type Row, RowEncoder } from './write/row-encoder.js';

/** The maximum number of rows that one statement reads for a page of one shard. */
const rowsPerReadMax = 2_000;

/** Which models to read, and where to continue; optionally only those that match a condition. */
export interface PgPageRequest<M> extends PageRequest<M> {
  /** Default: all rows. */
  readonly where?: SQL | undefined;
}

/**
 * What a repository needs: a model, its table, and functions that convert between rows and models if the columns are not exactly
 * the model's fields.
 */
export type PgRepositoryOptions<M extends AnyEntity, T extends ModelTable> = StoredModel<M, T> &
  (FieldsOf<T['$inferSelect']> extends ConstructorFields<M>
    ? { readonly toModel?: ToModel<M, T> }
    : ToModelNeededFor<UnreadFields<M, T>, ToModel<M, T>>) &
  ([M] extends [ReadonlyLists<T['$inferInsert']>]
    ? { readonly toRow?: ToRow<M, T> }
    : ToRowNeededFor<UnwrittenColumns<M, T>, ToRow<M, T>>);

/** An interface, because the compiler then shows its name and the names of the fields when `toModel` is missing. */
interface ToModelNeededFor<_Fields, Mapping> {
  readonly toModel: Mapping;
}

/** The same for `toRow`. */
interface ToRowNeededFor<_Columns, Mapping> {
  readonly toRow: Mapping;
}

/** The fields of the model without a column, or with one of another type. */
export type UnreadFields<M extends AnyEntity, T extends ModelTable> = Differing<
  FieldsOf<T['$inferSelect']>,
  ConstructorFields<M>
>;

/** The columns without a field in the model, or with one of another type. */
export type UnwrittenColumns<M, T extends ModelTable> = Differing<M, ReadonlyLists<T['$inferInsert']>>;

/** The keys that `Given` lacks or types differently; a key that is optional in only one of them differs, too. */
type Differing<Given, Wanted> = {
  [Key in keyof Wanted]-?: Pick<Given, Key & keyof Given> extends Pick<Wanted, Key> ? never : Key;
}[keyof Wanted];

/** The options of every repository, whatever its table. */
interface StoredModel<M extends AnyEntity, T extends ModelTable> {
  readonly model: ModelClass<M>;
  readonly table: T;
  readonly databases: DatabaseRegistry;
  /** Default: the shard is in the id's bits. */
  readonly strategy?: ShardingStrategy<M>;
}

/** The functions that convert between rows and models, if they are given. */
interface Mappings<M extends AnyEntity, T extends ModelTable> {
  readonly toModel?: ToModel<M, T>;
  readonly toRow?: ToRow<M, T>;
}

/** Makes a model from a row that was read. Default: calls the constructor, with `undefined` for null. */
type ToModel<M, T extends ModelTable> = (row: T['$inferSelect']) => M;

/**
 * Makes the row of a model that will be written; its id and version must be the model's. Default: the model's fields.
 *
 * If a key is absent, the database decides: a new row gets the column's default, and an updated row keeps its value. So leave out
 * columns that others maintain. `undefined` means null, unless the column has a default in the table. Without a `toRow`, such a
 * default applies to new rows only.
 */
type ToRow<M, T extends ModelTable> = (model: M) => T['$inferInsert'];

/** A row as the constructor gets it: with `undefined` for null. */
type FieldsOf<R> = {
  [Key in keyof R]: null extends R[Key] ? Exclude<R[Key], null> | undefined : R[Key];
};

/** The argument of the constructor; an optional field may be `undefined`. */
type ConstructorFields<M extends AnyEntity> = OptionalAsUndefined<
  M extends { readonly createdDate: Date } ? New<M> : NewEntity<M>
>;
/** The same fields; those that are optional may be given as `undefined`. */
type OptionalAsUndefined<Fields> = {
  [Key in keyof Fields]: undefined extends Fields[Key] ? Fields[Key] | undefined : Fields[Key];
};

/** The columns of a row to write, whose lists may be read-only. */
type ReadonlyLists<R> = {
  [Key in keyof R]: R[Key] extends (infer Item)[] | null | undefined
    ? readonly Item[] | Extract<R[Key], null | undefined>
    : R[Key];
};

/**
 * The models of one class on PostgreSQL: reads their table on the right shards, and makes its rows.
 *
 * Rows in the state `DELETED` are left out everywhere. Inside `inTransaction`, a read by id joins the transaction if that is on its
 * own shard; every other method also joins one on another shard of the same database.
 *
 * Extend it for your own queries:
 *
 * ```ts
 * class WalletRepository extends PgRepository<Wallet, typeof wallets> {
 *   constructor(databases: DatabaseRegistry) {
 *     super({ model: Wallet, table: wallets, databases });
 *   }
 *   findByOwner(ownerId: string): Promise<readonly Wallet[]> {
 *     return this.findAllWhere(eq(wallets.ownerId, ownerId));
 *   }
 * }
 * ```
 *
 * @example apps/counter/src/open-counters.ts
 *
 * ```ts
 * const repository = new PgRepository({ model: Counter, table: counters, databases });
 * ```
 */
export class PgRepository<M extends AnyEntity, T extends ModelTable>
  extends RepositoryReads<M, PgTransactions>
  implements Repository<M>, ModelMapper<M>
{
  /** The table that it reads and writes. */
  readonly table: T;
  readonly #reader: TableReader<T>;
  readonly #encoder: RowEncoder;
  readonly #modelOf: ToModel<M, T>;
  readonly #toRow: ToRow<M, T> | undefined;

  /**
   * @throws InvariantViolationError `invariant-violation` when the registry does not fit, or the table has a column of a type that is not
   * supported
   */
  constructor(options: PgRepositoryOptions<M, T>) {
    const { model, table, databases, strategy, toModel, toRow } = options as StoredModel<M, T> &
      Mappings<M, T>;
    super({ model, databases, strategy });
    this.table = table;
    this.#reader = new TableReader(table);
    this.#encoder = new RowEncoder(modelNameOf(model), table);
    this.#modelOf = toModel ?? byConstructor(model, table);
    this.#toRow = toRow;
    this.eachDatabase();
  }

  /**
   * Makes the row that will be written, when the executor stages the model.
   *
   * @throws UnstorableValueError `unstorable-value` when PostgreSQL would not return a value unchanged
   * @throws InvariantViolationError `invariant-violation` when a field has no column, or `toRow` returns another id or version than
   * the model's
   */
  encode(model: M): unknown {
    return this.#rowOf(model, true);
  }

  /** How many characters the values of an encoded row have that can be long. */
  sizeOf(encoded: unknown): number {
    let size = 0;
    for (const value of (encoded as Row).values) if (typeof value === 'string') size += value.length;
    return size;
  }

  /**
   * Makes the model that a read will return once an encoded row is written; `undefined` unless it is certain that the shard's table
   * stores the row exactly as it was sent.
   */
  decode(encoded: unknown, shard: ShardIdentifier): M | undefined {
    const row = encoded as Row;
    const manager = pgManager(this.managerOf(shard));
    if (!manager.isStoredAsSent(row)) return undefined;
    const fields = this.#encoder.decode(row);
    return fields && this.#toModel(fields, readBy(manager));
  }

  /**
   * How a model is written as JSON beside an idempotency key: with the keys of the table's columns, and each value in the form in
   * which it is sent to the database.
   *
   * @throws InvariantViolationError `invariant-violation` when only the database knows the values of a column
   */
  jsonCodec(): ModelJsonCodec<M> {
    const json = new RowJson(modelNameOf(this.model), this.table, this.#toRow === undefined);
    return {
      // A default that is computed again would differ from the one in the database.
      encode: (model) => json.write(this.#rowOf(model, false)),
      decode: (text) => this.#modelOf(json.read(text)),
    };
  }

  /**
   * Reads all models of all shards, in the order of ids.
   *
   * @param rowsMax how many there may be; if there can be more, read pages. Default 10,000
   * @throws LimitExceededError `limit-exceeded` when there are more
   */
  findAll(rowsMax?: number): Promise<readonly M[]> {
    return this.findAllWhere(undefined, rowsMax);
  }

  /** Reads all models that match a condition, on all shards in parallel; throws as {@link findAll} does. */
  async findAllWhere(condition: SQL | undefined, rowsMax?: number): Promise<readonly M[]> {
    const rows = await this.upTo((limit) => this.#firstRows(condition, limit), rowsMax);
    return rows.map(({ row, read }) => this.#toModel(row, read));
  }

  /**
   * Reads the one model that matches a condition, on any shard, or returns `undefined`.
   *
   * @throws NotUniqueError `not-unique` when several match
   */
  async findOneWhere(condition: SQL): Promise<M | undefined> {
    const [found, another] = await this.#firstRows(condition, 2);
    if (another !== undefined) throw new NotUniqueError(modelNameOf(this.model));
    return found && this.#toModel(found.row, found.read);
  }

  /**
   * Reads one page, of all shards or of one. It uses an index on the column and the id if there is one.
   *
   * If the database of `shard` also holds other shards, their rows are read and then left out.
   *
   * @throws InvalidCursorError `invalid-cursor` when `after` cannot be the `next` of a page in this order
   * @throws InvalidPageLimitError `invalid-page-limit` when the limit is not a whole number from 1 to 1,000
   * @throws InvariantViolationError `invariant-violation` when the table cannot be ordered by that column
   */
  async findPage({ where, limit, after, orderBy, direction, shard }: PgPageRequest<M>): Promise<Page<M>> {
    const size = pageSize(limit);
    const order = this.#reader.order({ orderBy, direction });
    const managers = shard === undefined ? this.eachDatabase() : [this.databaseOf(shard)];
    const found: { readonly model: M; readonly place: PagePlace }[] = [];
    let from = after === undefined ? undefined : order.placeOf(after, (id) => this.idText(id));
    let mayBeMore = true;
    // If rows of other shards lie in between, each further read is larger.
    for (
      let count = size + 1;
      mayBeMore && found.length <= size;
      count = Math.min(2 * count, rowsPerReadMax)
    ) {
      const rows = await this.#rows(managers, { where, limit: count, after: from, order });
      for (const { row, place, read } of rows) {
        const model = this.#toModel(row, read);
        if (shard === undefined || this.strategy.shardOfModel(model) === shard) found.push({ model, place });
      }
      mayBeMore = shard !== undefined && rows.length === count;
      from = rows.at(-1)?.place;
    }
    const last = found.length > size ? found[size - 1] : undefined;
    return {
      items: found.slice(0, size).map(({ model }) => model),
      next: last && order.cursorOf(last.place),
    };
  }

  /** Counts the models that match a condition, or all, on all shards. */
  async count(condition?: SQL): Promise<number> {
    const counts = await Promise.all(
      this.eachDatabase().map((manager) => this.#reader.count(manager, condition)),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** Drizzle for your own queries on one shard: the given one, or that of the given id. */
  db(where: Id<M> | ShardIdentifier): NodePgDatabase {
    return this.managerOf(where instanceof ShardIdentifier ? where : where.value).db;
  }

  /** Drizzle for your own queries on all shards: one instance for each database that holds any. */
  dbs(): readonly NodePgDatabase[] {
    return this.eachDatabase().map(({ db }) => db);
  }

  #rowOf(model: M, isForTable: boolean): Row {
    const toRow = this.#toRow;
    return toRow === undefined
      ? this.#encoder.encodeModel(model, isForTable)
      : this.#encoder.encode(toRow(model), model, isForTable);
  }

  /** Makes the model of a row, which remembers how it was read. */
  #toModel(row: T['$inferSelect'], read: ModelRead): M {
    const model = this.#modelOf(row);
    const form = formOfRow(row);
    setRead(model, form === undefined ? read : { ...read, form });
    return model;
  }

  #firstRows(where: SQL | undefined, limit: number): Promise<readonly ReadRow<T['$inferSelect']>[]> {
    return this.#rows(this.eachDatabase(), {
      where,
      limit,
      after: undefined,
      order: this.#reader.order({}),
    });
  }

  async #rows(
    managers: readonly PgTransactions[],
    query: Parameters<TableReader<T>['page']>[1],
  ): Promise<readonly ReadRow<T['$inferSelect']>[]> {
    const readPage = async (manager: PgTransactions): Promise<readonly ReadRow<T['$inferSelect']>[]> => {
      const read = readBy(manager);
      return (await this.#reader.page(manager, query)).map((row) => ({ ...row, read }));
    };
    return query.order.merged(await Promise.all(managers.map(readPage))).slice(0, query.limit);
  }

  /**
   * Narrows a manager to one of PostgreSQL.
   *
   * @throws InvariantViolationError `invariant-violation` when another driver opened the registry
   */
  protected override own(manager: TransactionManager): PgTransactions {
    return pgManager(manager);
  }

  /** Reads by id on the shard of a manager, with prepared statements. */
  protected override sourceOf(manager: PgTransactions): ModelSource<M> {
    return new PgModelSource(this.model, manager, this.#reader, (row, read) => this.#toModel(row, read));
  }

  /**
   * An id as the table writes it: a UUID in lower case if the column is a `uuid`, otherwise the text itself.
   *
   * @throws InvalidIdError `invalid-id` when no row of the table can have the id
   */
  protected override idText(id: string): string {
    return this.#reader.idText(id);
  }
}

/** A row, and how it was read. */
interface ReadRow<R> extends PlacedRow<R> {
  readonly read: ModelRead;
}

/** Calls the constructor with the row itself, which nothing else refers to; null becomes `undefined`. */
function byConstructor<M extends AnyEntity, T extends ModelTable>(
  model: ModelClass<M>,
  table: T,
): ToModel<M, T> {
  const constructor = model as unknown as new (fields: object) => M;
  const nullable = Object.entries(getTableColumns(table) as Record<string, PgColumn>)
    .filter(([, { notNull }]) => !notNull)
    .map(([key]) => key);
  return (row: Record<string, unknown>) => {
    for (const key of nullable) if (row[key] === null) row[key] = undefined;
    const built = new constructor(row);
    for (const key of nullable) {
      if (row[key] === undefined || (built as Readonly<Record<string, unknown>>)[key] !== undefined) continue;
      throw new InvariantViolationError(
        `The constructor of ${modelNameOf(model)} drops ${key}, which the next update would delete: assign it`,
      );
    }
    return built;
  };
}

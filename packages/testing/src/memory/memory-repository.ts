import {
  type DatabaseRegistry,
  Id,
  InvariantViolationError,
  type ModelClass,
  NotUniqueError,
  type Page,
  type PageRequest,
  type Repository,
  type ShardIdentifier,
  ShardedId,
  type ShardingStrategy,
} from '@framework/core';
import {
  type AnyEntity,
  type ModelJsonCodec,
  type ModelMapper,
  type ModelSource,
  RepositoryReads,
  type TransactionManager,
  modelNameOf,
  pageOf,
  setRead,
} from '@framework/core/adapter';

import { MemoryRow, faithfulCopy, fromJson, toJson } from './memory-row.js';
import { type MemoryTransactionManager, memoryManager } from './memory-transaction-manager.js';

const deletedState = 'DELETED';

/** Returns whether a model matches. */
export type Condition<M> = (model: M) => boolean;

/** Which models to read, and where to continue; optionally only those that match a condition. */
export interface MemoryPageRequest<M> extends PageRequest<M> {
  /** Which models to return. Default: all. */
  readonly where?: Condition<M> | undefined;
}

/**
 * A repository in memory, with the same reads as the repositories of every adapter; it always returns copies.
 *
 * Models in the state `DELETED` are left out everywhere. Inside `inTransaction` every method joins the transaction. Extend the
 * class for your own queries:
 *
 * ```ts
 * class MemoryWallets extends MemoryRepository<Wallet> {
 *   constructor(databases: DatabaseRegistry) {
 *     super({ model: Wallet, databases });
 *   }
 *   findByOwner(ownerId: string): Promise<readonly Wallet[]> {
 *     return this.findAllWhere((wallet) => wallet.ownerId === ownerId);
 *   }
 * }
 * ```
 */
export class MemoryRepository<M extends AnyEntity>
  extends RepositoryReads<M, TransactionManager>
  implements Repository<M>, ModelMapper<M>
{
  readonly #table: string;
  readonly #source: ModelSource<M>;

  /** @throws InvariantViolationError `invariant-violation` when the registry was not opened with `memory()` */
  constructor(options: {
    readonly model: ModelClass<M>;
    readonly databases: DatabaseRegistry;
    /** Finds the shard of a model. Default: reads it from the bits of the id. */
    readonly strategy?: ShardingStrategy<M>;
  }) {
    super(options);
    this.#table = modelNameOf(options.model);
    this.#source = {
      model: options.model,
      readOne: (id) => this.#managerOf(id).read(() => this.#present(id)),
      readSeveral: (ids) => this.#presentOf(ids),
    };
    this.eachDatabase();
  }

  /** Makes a model from the stored fields. Default: calls its constructor with all of them. */
  protected toModel(fields: object): M {
    return this.#construct(fields);
  }

  /**
   * The fields of a model that will be stored. Default: all except the events.
   *
   * As on a database, an update keeps the stored fields whose keys your own mapping leaves out. The id and the version must be
   * those of the model.
   */
  protected toRow(model: M): object {
    return ownFields(model);
  }

  /**
   * Makes the row that will be written, a copy of the model's fields.
   *
   * @throws InvariantViolationError `invariant-violation` when toRow returns an id or version that is not the model's
   * @throws UnstorableValueError `unstorable-value` for values that no database returns
   */
  encode(model: M): MemoryRow {
    const { id, version, state } = model;
    const row = this.toRow(model);
    this.#assertRowOf(model, row);
    const fields = this.#copy(row);
    return new MemoryRow({ id: id.value, version, state, fields, isWhole: !this.#hasOwnMapping() });
  }

  /** The model that a read returns for a row in the database. */
  modelOf({ fields }: MemoryRow): M {
    return this.toModel(this.#copy(fields));
  }

  /** The same, which remembers how it was read. */
  #read(row: MemoryRow, manager: TransactionManager): M {
    const model = this.modelOf(row);
    setRead(model, { manager, timeline: manager.timeline });
    return model;
  }

  /** The model that a read will return; `undefined` if the row may leave out what only the database knows. */
  decode(row: MemoryRow): M | undefined {
    return row.isWhole ? this.modelOf(row) : undefined;
  }

  /** How a model is written beside an idempotency key; it can only be read in the same process. */
  jsonCodec(): ModelJsonCodec<M> {
    return {
      encode: (model) => toJson(this.encode(model).fields),
      decode: (json) => this.toModel(fromJson(json) as object),
    };
  }

  /**
   * Stores a model as initial data of a test, without actions and the log, and returns it as stored.
   *
   * The model keeps its version; a model that was never stored gets version 1. Attached events are dropped.
   */
  async put(model: M): Promise<M> {
    const stored = this.#construct({ ...model, version: Math.max(model.version, 1), events: [] });
    this.#managerOf(this.strategy.shardOfModel(stored)).write(this.#table, this.encode(stored));
    return stored;
  }

  /** Reads the model with an id, even in the state `DELETED`; throws like {@link getById}. */
  async findStored(id: Id<M> | string): Promise<M | undefined> {
    const row = await this.#managerOf(String(id)).read(() => this.#row(String(id)));
    return row && this.modelOf(row);
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

  /** Reads all models that match a condition, on all shards; throws like {@link findAll}. */
  findAllWhere(condition: Condition<M> | undefined, rowsMax?: number): Promise<readonly M[]> {
    return this.upTo(() => this.#models(condition), rowsMax);
  }

  /**
   * Reads the one model that matches a condition, on any shard, or returns `undefined`.
   *
   * @throws NotUniqueError `not-unique` when several match
   */
  async findOneWhere(condition: Condition<M>): Promise<M | undefined> {
    const [model, another] = await this.#models(condition);
    if (another !== undefined) throw new NotUniqueError(this.#table);
    return model;
  }

  /**
   * Reads one page, over all shards or from one.
   *
   * @throws InvalidCursorError `invalid-cursor` when `after` cannot be the `next` of a page in this order
   * @throws InvalidPageLimitError `invalid-page-limit` when the limit is not a whole number from 1 to 1,000
   * @throws InvariantViolationError `invariant-violation` when the values of the field have no order
   */
  async findPage({ where, ...request }: MemoryPageRequest<M>): Promise<Page<M>> {
    const { shard } = request;
    const managers = shard === undefined ? this.eachDatabase() : [this.databaseOf(shard)];
    return pageOf(await this.#models(where, managers), request, this.strategy);
  }

  /** Counts the models that match a condition, or all, on all shards. */
  async count(condition?: Condition<M>): Promise<number> {
    return (await this.#models(condition)).length;
  }

  #hasOwnMapping(): boolean {
    return this.toRow !== MemoryRepository.prototype.toRow;
  }

  #construct(fields: object): M {
    const constructor = this.model as unknown as new (fields: object) => M;
    return new constructor(fields);
  }

  /** Reads from several databases in parallel; by default from all of them. */
  async #models(
    condition: Condition<M> | undefined,
    managers: readonly TransactionManager[] = this.eachDatabase(),
  ): Promise<readonly M[]> {
    const models = await Promise.all(
      managers
        .map(memoryManager)
        .map((manager) =>
          manager.read(() =>
            [...manager.rows(this.#table).values()]
              .filter(({ state }) => state !== deletedState)
              .map((row) => this.#read(row, manager)),
          ),
        ),
    );
    return models
      .flat()
      .sort((one, other) => byBytes(one.id.value, other.id.value))
      .filter((model) => condition?.(model) ?? true);
  }

  #copy(fields: object): object {
    const entries = Object.entries(fields);
    return Object.fromEntries(
      entries.map(([field, value]) => [field, faithfulCopy<unknown>(value, `${this.#table}.${field}`)]),
    );
  }

  #present(id: string): M | undefined {
    const row = this.#row(id);
    return row === undefined || row.state === deletedState ? undefined : this.#read(row, this.#managerOf(id));
  }

  async #presentOf(ids: readonly string[]): Promise<ReadonlyMap<string, () => M>> {
    const found = new Map<string, () => M>();
    const present = (each: readonly string[], manager: MemoryTransactionManager): void => {
      for (const id of each) {
        const row = this.#row(id);
        if (row !== undefined && row.state !== deletedState) found.set(id, () => this.#read(row, manager));
      }
    };
    const byManager = Map.groupBy(ids, (id) => this.#managerOf(id));
    await Promise.all([...byManager].map(([manager, each]) => manager.read(() => present(each, manager))));
    return found;
  }

  #row(id: string): MemoryRow | undefined {
    return this.#managerOf(id).rows(this.#table).get(this.idText(id));
  }

  /**
   * A UUID in lower case, unless the ids of the table are texts. No column declares their type in memory, so the stored rows decide.
   */
  protected override idText(id: string): string {
    const lowerCase = super.idText(id);
    if (lowerCase === id) return id;
    const rows = this.#managerOf(id).rows(this.#table);
    return rows.has(id) || hasTextId(rows.get(lowerCase)) ? id : lowerCase;
  }

  #assertRowOf(model: M, row: object): void {
    const { id, version } = row as { readonly id?: unknown; readonly version?: unknown };
    if (String(id) === model.id.value && String(version) === String(model.version)) return;
    const given = `${String(id).slice(0, 80)} version ${String(version)}`;
    throw new InvariantViolationError(
      `toRow returns ${this.#table} ${given} for ${model.id.value} version ${model.version}: return the model's id and version unchanged`,
    );
  }

  #managerOf(where: ShardIdentifier | string): MemoryTransactionManager {
    return memoryManager(this.managerOf(where));
  }

  /** Has the port's return type, so that classes which extend this one do not depend on the tables. */
  protected override own(manager: TransactionManager): TransactionManager {
    return memoryManager(manager);
  }

  /** Returns the same source for all shards. */
  protected override sourceOf(): ModelSource<M> {
    return this.#source;
  }
}

function ownFields(model: object): object {
  return Object.fromEntries(Object.entries(model).filter(([field]) => field !== 'events'));
}

function hasTextId(row: MemoryRow | undefined): boolean {
  const { id } = (row?.fields ?? {}) as { readonly id?: unknown };
  return id instanceof Id && !(id instanceof ShardedId);
}

function byBytes(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

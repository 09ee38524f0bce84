import {
  type DatabaseRegistry,
  EmbeddedBitsShardingStrategy,
  EntityNotFoundError,
  type Id,
  InvalidCursorError,
  LimitExceededError,
  type ModelClass,
  NotUniqueError,
  type Page,
  type PageRequest,
  type Repository,
  type ShardIdentifier,
} from '@framework/core';
import {
  type AnyEntity,
  type ModelMapper,
  type ModelSource,
  UnstorableValueError,
  exactJson,
  madeModels,
  modelNameOf,
  pageOf,
  pageSize,
  readById,
  readByIds,
} from '@framework/core/adapter';
import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import * as z from 'zod';

import {
  type SqliteRow,
  type SqliteTransactionManager,
  sqliteManager,
} from './sqlite-transaction-manager.js';

/** A condition of a read, such as `fields ->> 'owner' = ?`, with the values of its parameters. */
interface Condition {
  readonly where: string;
  readonly values: readonly SQLInputValue[];
}

const everything: Condition = { where: 'true', values: [] };

/** A repository on SQLite, which writes the fields of its models with a codec. */
export class SqliteRepository<M extends AnyEntity> implements Repository<M>, ModelMapper<M> {
  readonly model: ModelClass<M>;
  readonly strategy: EmbeddedBitsShardingStrategy = new EmbeddedBitsShardingStrategy();
  readonly #codec: z.ZodType<M>;
  readonly #databases: DatabaseRegistry;
  readonly #sources = new Map<SqliteTransactionManager, ModelSource<M>>();

  constructor(options: {
    readonly model: ModelClass<M>;
    /** Reads a model from JSON, and writes it back. */
    readonly codec: z.ZodType<M>;
    readonly databases: DatabaseRegistry;
  }) {
    this.model = options.model;
    this.#codec = options.codec;
    this.#databases = options.databases;
  }

  encode(model: M): SqliteRow {
    const name = modelNameOf(this.model);
    const { success, data, error } = z.safeEncode(this.#codec, model);
    if (!success) {
      const [issue] = error.issues;
      throw new UnstorableValueError(
        [name, ...(issue?.path ?? [])].join('.'),
        issue?.message ?? 'it is invalid',
      );
    }
    return { id: model.id.value, state: model.state, version: model.version, fields: exactJson(data, name) };
  }

  decode({ fields }: Pick<SqliteRow, 'fields'>): M {
    return this.#codec.parse(JSON.parse(fields));
  }

  async getById(id: Id<M> | string): Promise<M> {
    const model = await this.findById(id);
    if (model === undefined) throw new EntityNotFoundError(modelNameOf(this.model), String(id));
    return model;
  }

  async findById(id: Id<M> | string): Promise<M | undefined> {
    const text = String(id).toLowerCase();
    const manager = this.#managerOf(text);
    const source = this.#source(manager);
    return manager.isInTransaction() ? source.readOne(text) : readById(source, text);
  }

  async existsById(id: Id<M> | string): Promise<boolean> {
    return (await this.findById(id)) !== undefined;
  }

  async findAllByIds(ids: readonly (Id<M> | string)[]): Promise<readonly M[]> {
    const texts = ids.map((id) => String(id).toLowerCase());
    const byManager = Map.groupBy(texts, (id) => this.#managerOf(id));
    const found = await Promise.all(
      [...byManager].map(async ([manager, own]) => {
        const source = this.#source(manager);
        return manager.isInTransaction() ? madeModels(await source.readSeveral(own)) : readByIds(source, own);
      }),
    );
    const models = new Map(found.flatMap((each) => [...each]));
    return texts.map((id) => models.get(id)).filter((model) => model !== undefined);
  }

  findAll(rowsMax?: number): Promise<readonly M[]> {
    return this.findAllWhere(everything, rowsMax);
  }

  /** All matching models on all shards, in the order of ids; throws `limit-exceeded` beyond `rowsMax`. */
  async findAllWhere(condition: Condition, rowsMax = 10_000): Promise<readonly M[]> {
    const models = await this.#merged(condition, rowsMax + 1);
    if (models.length <= rowsMax) return models;
    throw new LimitExceededError('rowsMax', rowsMax, `More than ${rowsMax} match: read them with findPage`);
  }

  /** The one matching model; throws `not-unique` if there are several. */
  async findOneWhere(condition: Condition): Promise<M | undefined> {
    const [model, another] = await this.#merged(condition, 2);
    if (another !== undefined) throw new NotUniqueError(modelNameOf(this.model));
    return model;
  }

  /** Reads pages by key in the order of ids. Other orders are cut from all models, since fields in JSON have no types. */
  async findPage({
    condition = everything,
    ...request
  }: PageRequest<M> & { readonly condition?: Condition }): Promise<Page<M>> {
    const { limit, after = '', orderBy = 'id', direction, shard } = request;
    if (shard !== undefined) this.#manager(shard);
    if (orderBy !== 'id' || direction === 'descending' || shard !== undefined)
      return pageOf(await this.#merged(condition, Number.MAX_SAFE_INTEGER), request, this.strategy);
    const size = pageSize(limit);
    if (after !== '' && !z.uuidv7().safeParse(after).success) throw new InvalidCursorError(after);
    const models = await this.#merged(condition, size + 1, after);
    const items = models.slice(0, size);
    return { items, next: models.length > size ? items.at(-1)?.id.value : undefined };
  }

  async count({ where, values }: Condition = everything): Promise<number> {
    const counts = await this.#everywhere((connection) =>
      connection.prepare(`select count(*) as count from ${this.#present} and ${where}`).get(...values),
    );
    return counts.reduce((sum, row) => sum + Number(row?.['count']), 0);
  }

  /** The rows of the model that are not deleted. */
  get #present(): string {
    return `models where model = '${modelNameOf(this.model).replaceAll("'", "''")}' and state <> 'DELETED'`;
  }

  /** The first matching models of all databases, in the order of ids. */
  async #merged({ where, values }: Condition, limit: number, after = ''): Promise<readonly M[]> {
    const text = `select id, fields from ${this.#present} and id > ? and ${where} order by id limit ?`;
    const rows = await this.#everywhere((connection) =>
      connection.prepare(text).all(after, ...values, limit),
    );
    return rows
      .flat()
      .toSorted((one, other) => (String(one['id']) < String(other['id']) ? -1 : 1))
      .slice(0, limit)
      .map((row) => this.decode({ fields: String(row['fields']) }));
  }

  /** Asks each database once, in parallel, in the caller's transaction if there is one. */
  #everywhere<T>(work: (connection: DatabaseSync) => T): Promise<readonly T[]> {
    return Promise.all(
      this.#databases
        .eachDatabase()
        .flatMap(([manager]) => (manager ? sqliteManager(manager).read(work) : [])),
    );
  }

  #managerOf(id: string): SqliteTransactionManager {
    return this.#manager(this.strategy.shardOfId(id));
  }

  #manager(shard: ShardIdentifier): SqliteTransactionManager {
    return sqliteManager(this.#databases.transactionManager(shard));
  }

  /** Reads by id, which core combines when they happen at the same time. */
  #source(manager: SqliteTransactionManager): ModelSource<M> {
    const known = this.#sources.get(manager);
    if (known !== undefined) return known;
    const readSeveral = (ids: readonly string[]): Promise<ReadonlyMap<string, () => M>> =>
      manager.read((connection) => {
        const marks = ids.map(() => '?').join();
        const rows = connection
          .prepare(`select id, fields from ${this.#present} and id in (${marks})`)
          .all(...ids);
        return new Map(
          rows.map(({ id, fields }) => [String(id), () => this.decode({ fields: String(fields) })] as const),
        );
      });
    const readOne = async (id: string): Promise<M | undefined> => (await readSeveral([id])).get(id)?.();
    const source = { model: this.model, readOne, readSeveral };
    this.#sources.set(manager, source);
    return source;
  }
}

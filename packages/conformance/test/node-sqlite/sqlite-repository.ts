import {
  type DatabaseRegistry,
  InvalidCursorError,
  type ModelClass,
  NotUniqueError,
  type Page,
  type PageRequest,
  type Repository,
} from '@framework/core';
import {
  type AnyEntity,
  type ModelMapper,
  type ModelSource,
  RepositoryReads,
  type TransactionManager,
  UnstorableValueError,
  exactJson,
  modelNameOf,
  pageOf,
  pageSize,
} from '@framework/core/adapter';
import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import * as z from 'zod';

import { type SqliteRow, SqliteTransactionManager } from './sqlite-transaction-manager.js';

/** A condition of a read, such as `fields ->> 'owner' = ?`, with the values of its parameters. */
interface Condition {
  readonly where: string;
  readonly values: readonly SQLInputValue[];
}

const everything: Condition = { where: 'true', values: [] };

/** A repository on SQLite, which writes the fields of its models with a codec. */
export class SqliteRepository<M extends AnyEntity>
  extends RepositoryReads<M, SqliteTransactionManager>
  implements Repository<M>, ModelMapper<M>
{
  readonly #codec: z.ZodType<M>;
  /** The rows of the model that are not deleted, as SQL to follow `from`. */
  readonly #present: string;

  constructor(options: {
    readonly model: ModelClass<M>;
    /** Reads a model from JSON, and writes it back. */
    readonly codec: z.ZodType<M>;
    readonly databases: DatabaseRegistry;
  }) {
    super(options);
    this.#codec = options.codec;
    const model = modelNameOf(options.model).replaceAll("'", "''");
    this.#present = `models where model = '${model}' and state <> 'DELETED'`;
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

  findAll(rowsMax?: number): Promise<readonly M[]> {
    return this.findAllWhere(everything, rowsMax);
  }

  /** All matching models on all shards, in the order of ids; throws `limit-exceeded` if there are more than `rowsMax`. */
  findAllWhere(condition: Condition, rowsMax?: number): Promise<readonly M[]> {
    return this.upTo((limit) => this.#first(condition, limit), rowsMax);
  }

  /** The one matching model; throws `not-unique` if there are several. */
  async findOneWhere(condition: Condition): Promise<M | undefined> {
    const [model, another] = await this.#first(condition, 2);
    if (another !== undefined) throw new NotUniqueError(modelNameOf(this.model));
    return model;
  }

  /**
   * Reads a page. Only pages of all shards in ascending order of ids are read by key. All others are cut from the list of all
   * models, because fields in JSON have no types that SQL could sort by.
   */
  async findPage({
    condition = everything,
    ...request
  }: PageRequest<M> & { readonly condition?: Condition }): Promise<Page<M>> {
    const { limit, after, orderBy = 'id', direction, shard } = request;
    if (shard !== undefined) this.managerOf(shard);
    if (orderBy !== 'id' || (direction ?? 'ascending') !== 'ascending' || shard !== undefined)
      return pageOf(await this.#first(condition, Number.MAX_SAFE_INTEGER), request, this.strategy);
    const size = pageSize(limit);
    if (after !== undefined && !z.uuidv7().safeParse(after).success) throw new InvalidCursorError(after);
    const models = await this.#first(condition, size + 1, after);
    const items = models.slice(0, size);
    return { items, next: models.length > size ? items.at(-1)?.id.value : undefined };
  }

  async count({ where, values }: Condition = everything): Promise<number> {
    const text = `select count(*) as count from ${this.#present} and (${where})`;
    const counts = await this.#everywhere((connection) => connection.prepare(text).get(...values));
    return counts.reduce((sum, row) => sum + Number(row?.['count']), 0);
  }

  /** The first matching models of all databases, in the order of ids. */
  async #first({ where, values }: Condition, limit: number, after = ''): Promise<readonly M[]> {
    const text = `select id, fields from ${this.#present} and id > ? and (${where}) order by id limit ?`;
    const rows = await this.#everywhere((connection) =>
      connection.prepare(text).all(after, ...values, limit),
    );
    return rows
      .flat()
      .toSorted((one, other) => (String(one['id']) < String(other['id']) ? -1 : 1))
      .slice(0, limit)
      .map((row) => this.decode({ fields: String(row['fields']) }));
  }

  /** Asks each database once, in parallel. */
  #everywhere<T>(work: (connection: DatabaseSync) => T): Promise<readonly T[]> {
    return Promise.all(this.eachDatabase().map((manager) => manager.read(work)));
  }

  protected own(manager: TransactionManager): SqliteTransactionManager {
    return SqliteTransactionManager.of(manager);
  }

  protected sourceOf(manager: SqliteTransactionManager): ModelSource<M> {
    const readSeveral = (ids: readonly string[]): Promise<ReadonlyMap<string, () => M>> =>
      manager.read((connection) => {
        const marks = ids.map(() => '?').join();
        const text = `select id, fields from ${this.#present} and id in (${marks})`;
        const rows = connection.prepare(text).all(...ids);
        return new Map(
          rows.map(({ id, fields }) => [String(id), () => this.decode({ fields: String(fields) })] as const),
        );
      });
    const readOne = async (id: string): Promise<M | undefined> => (await readSeveral([id])).get(id)?.();
    return { model: this.model, readOne, readSeveral };
  }
}

import type { AnyEntity, ModelClass, ModelSource } from '@framework/core';
import type { PgTransactionManager } from '../connection/pg-transaction-manager.js';
import type { ModelTable } from '../model-table.js';
import type { TableReader } from './table-reader.js';

/** The models of one table on one shard, by their ids. */
export class PgModelSource<M extends AnyEntity, T extends ModelTable> implements ModelSource<M> {
  readonly model: ModelClass<M>;
  readonly #manager: PgTransactionManager;
  readonly #reader: TableReader<T>;
  readonly #toModel: (row: T['$inferSelect']) => M;

  constructor(
    model: ModelClass<M>,
    manager: PgTransactionManager,
    reader: TableReader<T>,
    toModel: (row: T['$inferSelect']) => M,
  ) {
    this.model = model;
    this.#manager = manager;
    this.#reader = reader;
    this.#toModel = toModel;
  }

  async readOne(id: string): Promise<M | undefined> {
    const row = await this.#reader.byId(this.#manager, id);
    return row === undefined ? undefined : this.#toModel(row);
  }

  async readSeveral(ids: readonly string[]): Promise<ReadonlyMap<string, () => M>> {
    const rows = await this.#reader.bySeveralIds(this.#manager, ids);
    return new Map([...rows].map(([id, decode]) => [id, () => this.#toModel(decode())]));
  }
}

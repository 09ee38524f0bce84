import type { AnyEntity, Id, Page, Repository } from '@framework/core';

/** What the suite reads through: the methods that every adapter's repositories have. */
export interface ModelReader<M extends AnyEntity> extends Repository<M> {
  getById(id: Id<M> | string): Promise<M>;
  findById(id: Id<M> | string): Promise<M | undefined>;
  /** In the order of the ids; missing ones are left out. */
  findAllByIds(ids: readonly (Id<M> | string)[]): Promise<readonly M[]>;
  /** All models of all shards in the order of ids; refused with `limit-exceeded` beyond `rowsMax`. */
  findAll(rowsMax?: number): Promise<readonly M[]>;
  findPage(page: { readonly limit: number; readonly after?: string | undefined }): Promise<Page<M>>;
  count(): Promise<number>;
  existsById(id: Id<M> | string): Promise<boolean>;
}

import type { AnyEntity } from '../model/entity.js';
import type { ModelClass } from '../model/model-class.js';

/** Port: reads the models of one class on one shard by their ids; made once, and passed to {@link readById}. */
export interface ModelSource<M extends AnyEntity = AnyEntity> {
  readonly model: ModelClass<M>;
  /** Reads the model of an id, or `undefined`; in the way that is the fastest for one. */
  readOne(id: string): Promise<M | undefined>;
  /**
   * Reads the models of several ids by one statement; by their ids, missing ones are left out.
   *
   * Executions that read one model at once share the statement, and no object: each call makes a model of its own.
   */
  readSeveral(ids: readonly string[]): Promise<ReadonlyMap<string, () => M>>;
}

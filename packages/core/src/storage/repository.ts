import { InvariantViolationError } from '../errors/framework-error.js';
import type { ModelClass } from '../model/model-class.js';
import type { AnyEntity } from '../model/model.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ShardingStrategy } from '../sharding/sharding-strategy.js';

/** Port: how models of one class are stored. The executor writes through it; actions read through the adapter's class. */
export interface Repository<M extends AnyEntity = AnyEntity> {
  /** The class whose models it stores. */
  readonly model: ModelClass<M>;
  readonly strategy: ShardingStrategy<M>;
  /**
   * Makes the row that will be written, at the moment when the model is staged.
   *
   * @throws UnstorableValueError `unstorable-value` when a value would not come back as it is
   */
  encode(model: M): unknown;
  /**
   * Makes the model that a read will give once a row is written on a shard; `undefined` where only the database can tell, as
   * where it fills in a default, or a trigger may change the row. Without this method every read waits until the row is written.
   */
  decode?(row: unknown, shard: ShardIdentifier): M | undefined;
}

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

/** One page of a longer list, read by key and not by offset. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Pass it as `after` to read on; `undefined` on the last page. */
  readonly next: string | undefined;
}

const itemsMax = 1_000;

/**
 * How many items a page may have, 1 to 1,000, when so many are asked for; for adapters, whose limits are all alike.
 *
 * @throws InvariantViolationError `invariant-violation` for what is no whole number, or below zero
 */
export function pageSize(limit: number): number {
  if (!Number.isSafeInteger(limit) || limit < 0) {
    throw new InvariantViolationError(
      `The limit of a page is ${String(limit)}: pass a whole number, 1 to ${itemsMax}`,
    );
  }
  return Math.min(Math.max(limit, 1), itemsMax);
}

import type { Id } from '../id/id.js';
import type { ModelClass } from '../model/model-class.js';
import type { AnyEntity } from '../model/model.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ShardingStrategy } from '../sharding/sharding-strategy.js';
import type { Page, PageRequest } from './page.js';

/**
 * Port: reads the models of one class, on the shards that hold them. An action that reads depends on this, such as on a
 * `Repository<Wallet>`; queries of your own are methods of the adapter's class.
 *
 * Rows of state `DELETED` are left out everywhere. Inside `inTransaction` every method joins the transaction.
 */
export interface Repository<M extends AnyEntity = AnyEntity> {
  /**
   * Reads the model of an id.
   *
   * @throws EntityNotFoundError `entity-not-found` when there is none
   * @throws InvalidIdError `invalid-id` when no model can have it
   * @throws ShardUndeterminedError `shard-undetermined` when the strategy cannot tell the shard from an id
   * @throws UnknownShardError `unknown-shard` when the id's shard is not configured
   */
  getById(id: Id<M> | string): Promise<M>;
  /** Reads the model of an id, or `undefined`; throws as {@link getById}. */
  findById(id: Id<M> | string): Promise<M | undefined>;
  /** Reads the models of several ids, in the order of the ids; missing ones are left out. */
  findAllByIds(ids: readonly (Id<M> | string)[]): Promise<readonly M[]>;
  /** Tells whether the id has a model; throws as {@link getById}, except that none is no error. */
  existsById(id: Id<M> | string): Promise<boolean>;
  /**
   * Reads all models of all shards, in the order of ids.
   *
   * @param rowsMax how many there may be; read pages where there can be more. Default 10,000
   * @throws LimitExceededError `limit-exceeded` when there are more
   */
  findAll(rowsMax?: number): Promise<readonly M[]>;
  /**
   * Reads one page, over all shards or of one.
   *
   * @throws InvalidCursorError `invalid-cursor` when `after` cannot be the `next` of a page in this order
   * @throws InvariantViolationError `invariant-violation` when the limit is no whole number, or below zero, or when the models
   * have no order by that field
   */
  findPage(request: PageRequest<M>): Promise<Page<M>>;
  /** Counts the models of all shards. */
  count(): Promise<number>;
}

/** Port: how models of one class are written, and what a row says of them. The executor stages by it. */
export interface ModelMapper<M extends AnyEntity = AnyEntity> {
  /** The class whose models it writes. */
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
  /**
   * How a model is written as JSON beside an idempotency key, and read from it. Without this method no model can be declared as
   * the result of an action by its class, only by a schema.
   *
   * @throws InvariantViolationError `invariant-violation` when the rows have something that JSON cannot say
   */
  jsonCodec?(): ModelJsonCodec<M>;
}

/** Writes models of one class as JSON and reads them, also those that an earlier version of the application wrote. */
export interface ModelJsonCodec<M extends AnyEntity = AnyEntity> {
  /** @throws UnstorableValueError `unstorable-value` when a value would not come back as it is */
  encode(model: M): string;
  /** @throws whatever the constructor of the model throws for what it does not take */
  decode(json: string): M;
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

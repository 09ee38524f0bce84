import { LimitExceededError } from '../errors/action-errors.js';
import { InvariantViolationError } from '../errors/framework-error.js';
import { InvalidIdError } from '../errors/value-errors.js';
import { type Id, ShardedId } from '../id/id.js';
import { type ModelClass, isStorableText, modelNameOf } from '../id/model-class.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { AnyEntity } from '../model/model.js';
import type { DatabaseRegistry } from '../storage/database-registry.js';
import type { ModelSource, ShardingStrategy } from '../storage/repository.js';
import { EntityNotFoundError, ShardUndeterminedError } from '../storage/storage-errors.js';
import type { TransactionManager } from '../storage/transaction-manager.js';
import { instantiate, readById, readByIds } from './read-batcher.js';

/** How many models `findAll` returns at most, unless the caller sets another limit. */
const defaultRowsMax = 10_000;
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * For adapters, the base class of their repositories: finds the shard of an id, combines reads by id, asks each database once,
 * joins the transaction in which the caller runs, and limits the number of results.
 *
 * The registry is asked for a manager at every read, because core records where an execution has read, and on which timeline.
 */
export abstract class RepositoryReads<M extends AnyEntity, Manager extends TransactionManager> {
  readonly model: ModelClass<M>;
  readonly strategy: ShardingStrategy<M>;
  /** The databases that it reads. */
  readonly databases: DatabaseRegistry;
  readonly #sources = new Map<Manager, ModelSource<M>>();

  constructor(options: {
    readonly model: ModelClass<M>;
    readonly databases: DatabaseRegistry;
    /** Default: the id contains the shard, see {@link EmbeddedBitsShardingStrategy}. */
    readonly strategy?: ShardingStrategy<M> | undefined;
  }) {
    this.model = options.model;
    this.strategy = options.strategy ?? new EmbeddedBitsShardingStrategy();
    this.databases = options.databases;
  }

  /**
   * Returns a manager of the registry as one of the adapter's own class.
   *
   * @throws InvariantViolationError `invariant-violation` when the registry has another driver
   */
  protected abstract own(manager: TransactionManager): Manager;
  /** How models are read by id on a manager's shard; created once for each manager. */
  protected abstract sourceOf(manager: Manager): ModelSource<M>;

  /**
   * An id as the database writes it. By default, a UUID in lower case and every other text as it is.
   *
   * @throws InvalidIdError `invalid-id` when no row can have the id
   */
  protected idText(id: string): string {
    if (!isStorableText(id)) throw new InvalidIdError(id, 'a text that a database can store');
    return uuid.test(id) ? id.toLowerCase() : id;
  }

  /**
   * Reads the model of an id.
   *
   * @throws EntityNotFoundError `entity-not-found` when there is none
   * @throws InvalidIdError `invalid-id` when no row can have the id
   * @throws ShardUndeterminedError `shard-undetermined` when the strategy cannot tell the shard from an id
   * @throws UnknownShardError `unknown-shard` when the id's shard is not configured
   */
  async getById(id: Id<M> | string): Promise<M> {
    const model = await this.findById(id);
    if (model === undefined) throw new EntityNotFoundError(modelNameOf(this.model), String(id));
    return model;
  }

  /** Reads the model of an id, or returns `undefined`; throws as {@link getById}. */
  async findById(id: Id<M> | string): Promise<M | undefined> {
    const text = this.idText(String(id));
    const manager = this.managerOf(text);
    const source = this.#source(manager);
    return manager.isInTransaction() ? source.readOne(text) : readById(source, text);
  }

  /** Returns whether the id has a model; throws as {@link getById}, except for a missing model. */
  async existsById(id: Id<M> | string): Promise<boolean> {
    return (await this.findById(id)) !== undefined;
  }

  /**
   * Reads the models of several ids, one statement per shard, in the order of the ids; missing ones are left out.
   *
   * @throws InvariantViolationError `invariant-violation` when the ids are not a list
   */
  async findAllByIds(ids: readonly (Id<M> | string)[]): Promise<readonly M[]> {
    if (!Array.isArray(ids)) {
      throw new InvariantViolationError(
        `findAllByIds of ${modelNameOf(this.model)} got no list: pass a list of ids`,
      );
    }
    const texts = ids.map((id: Id<M> | string) => this.idText(String(id)));
    const byManager = Map.groupBy(texts, (id) => this.managerOf(id));
    const found = await Promise.all(
      [...byManager].map(async ([manager, own]) => {
        const source = this.#source(manager);
        return manager.isInTransaction()
          ? instantiate(await source.readSeveral(own))
          : readByIds(source, own);
      }),
    );
    return texts
      .map((id) => found.find((models) => models.has(id))?.get(id))
      .filter((model) => model !== undefined);
  }

  /** The manager of a shard, or of the shard of an id, outside of `inTransaction` as well as inside. */
  protected managerOf(where: ShardIdentifier | string): Manager {
    if (typeof where !== 'string') return this.own(this.databases.transactionManager(where));
    const shard = this.strategy.shardOfId(where);
    if (shard === undefined) throw new ShardUndeterminedError(modelNameOf(this.model), where);
    return this.own(this.databases.transactionManager(shard));
  }

  /** One manager for each database: the one in whose transaction the caller runs, or the first. */
  protected eachDatabase(): readonly Manager[] {
    return this.databases.eachDatabase().flatMap((managers) => this.#joined(managers));
  }

  /**
   * A manager for the database of one shard, whose rows may be among those of other shards: the one in whose transaction the caller
   * runs, or the shard's own. An execution that asks for it needs no other database.
   */
  protected databaseOf(shard: ShardIdentifier): Manager {
    const own = this.managerOf(shard);
    // Another transaction of the same database does not see what the shard's own one has written.
    if (own.isInTransaction()) return own;
    const managers = this.databases.managersBeside(shard).map((manager) => this.own(manager));
    return managers.find((manager) => manager.isInTransaction()) ?? own;
  }

  #joined(managers: readonly TransactionManager[]): readonly Manager[] {
    const own = managers.map((manager) => this.own(manager));
    const manager = own.find((each) => each.isInTransaction()) ?? own[0];
    return manager === undefined ? [] : [manager];
  }

  /**
   * Reads one item more than a list may have, and refuses the list if there are that many.
   *
   * @param read reads the first items of all databases, at most the given number
   * @throws LimitExceededError `limit-exceeded` when there are more
   * @throws InvariantViolationError `invariant-violation` when the maximum is not a whole number, or is negative
   */
  protected async upTo<T>(
    read: (limit: number) => Promise<readonly T[]>,
    rowsMax: number = defaultRowsMax,
  ): Promise<readonly T[]> {
    if (!Number.isSafeInteger(rowsMax) || rowsMax < 0) {
      throw new InvariantViolationError(`rowsMax is ${String(rowsMax)}: pass a whole number from 0`);
    }
    const items = await read(rowsMax + 1);
    if (items.length <= rowsMax) return items;
    const message = `More than ${rowsMax} ${modelNameOf(this.model)} match: read them with findPage`;
    throw new LimitExceededError('rowsMax', rowsMax, message);
  }

  #source(manager: Manager): ModelSource<M> {
    const source = this.#sources.get(manager) ?? this.sourceOf(manager);
    this.#sources.set(manager, source);
    return source;
  }
}

/** The default strategy: the shard that the {@link ShardedId} carries in its bits. */
export class EmbeddedBitsShardingStrategy implements ShardingStrategy {
  /** The shard in the bits of the model's id; throws as {@link shardOfId}. */
  shardOfModel(model: AnyEntity): ShardIdentifier {
    return model.id instanceof ShardedId ? model.id.resolveShardIdentifier() : this.shardOfId(model.id.value);
  }

  /**
   * The shard in the bits of an id.
   *
   * @throws InvalidIdError `invalid-id` when the id is not a UUID version 7
   */
  shardOfId(id: string): ShardIdentifier {
    return ShardedId.of(Object, id).resolveShardIdentifier();
  }
}

import { type AnyEntity, type ModelMapper, type ModelSource, readById, readByIds } from '../src/adapter.js';
import {
  EmbeddedBitsShardingStrategy,
  EntityNotFoundError,
  type Id,
  type ModelClass,
  type ShardingStrategy,
} from '../src/index.js';

/** A repository in memory, with the models that a test puts there. */
export class FakeRepository<M extends AnyEntity> implements ModelMapper<M> {
  readonly model: ModelClass<M>;
  readonly strategy: ShardingStrategy<M>;
  readonly table: string | undefined;
  /** How often it was asked for one model or several. */
  reads = 0;
  readonly #stored = new Map<string, M>();
  readonly #encode: (model: M) => unknown;
  readonly #encoded = new WeakMap<object, M>();
  readonly #source: ModelSource<M>;

  constructor(
    model: ModelClass<M>,
    options: {
      readonly strategy?: ShardingStrategy<M>;
      readonly encode?: (model: M) => unknown;
      readonly table?: string;
    } = {},
  ) {
    this.model = model;
    this.table = options.table;
    this.strategy = options.strategy ?? new EmbeddedBitsShardingStrategy();
    this.#encode = options.encode ?? ((each) => this.#row(each));
    this.#source = {
      model,
      table: options.table,
      readOne: async (id) => this.#read([id]).get(id)?.(),
      readSeveral: async (ids) => this.#read(ids),
    };
  }

  encode(model: M): unknown {
    return this.#encode(model);
  }

  decode(row: unknown): M | undefined {
    return typeof row === 'object' && row !== null ? this.#encoded.get(row) : undefined;
  }

  store(model: M): M {
    this.#stored.set(model.id.value, model);
    return model;
  }

  async getById(id: Id<M>): Promise<M> {
    const model = await readById(this.#source, id.value);
    if (model === undefined) throw new EntityNotFoundError(this.model.name, id.value);
    return model;
  }

  async findAllByIds(ids: readonly Id<M>[]): Promise<readonly M[]> {
    return [
      ...(
        await readByIds(
          this.#source,
          ids.map(({ value }) => value),
        )
      ).values(),
    ];
  }

  #row(model: M): object {
    const row = { id: model.id.value, version: model.version };
    this.#encoded.set(row, model);
    return row;
  }

  #read(ids: readonly string[]): ReadonlyMap<string, () => M> {
    this.reads++;
    const found = [...this.#stored].filter(([id]) => ids.includes(id));
    return new Map(found.map(([id, model]) => [id, () => model]));
  }
}

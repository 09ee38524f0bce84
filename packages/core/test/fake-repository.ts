import {
  type AnyEntity,
  EmbeddedBitsShardingStrategy,
  EntityNotFoundException,
  type Id,
  type ModelClass,
  type Repository,
  type ShardingStrategy,
} from '../src/index.js';

/** A repository of models in memory, which a test puts there. */
export class FakeRepository<M extends AnyEntity> implements Repository<M> {
  readonly model: ModelClass<M>;
  readonly strategy: ShardingStrategy<M>;
  /** How often a model was read. */
  reads = 0;
  readonly #stored = new Map<string, M>();
  readonly #encode: (model: M) => unknown;

  constructor(
    model: ModelClass<M>,
    options: { readonly strategy?: ShardingStrategy<M>; readonly encode?: (model: M) => unknown } = {},
  ) {
    this.model = model;
    this.strategy = options.strategy ?? new EmbeddedBitsShardingStrategy();
    this.#encode = options.encode ?? ((each) => ({ id: each.id.value, version: each.version }));
  }

  encode(model: M): unknown {
    return this.#encode(model);
  }

  store(model: M): M {
    this.#stored.set(model.id.value, model);
    return model;
  }

  async getById(id: Id<M>): Promise<M> {
    this.reads++;
    const model = this.#stored.get(id.value);
    if (model === undefined) throw new EntityNotFoundException(this.model.name, id.value);
    return model;
  }
}

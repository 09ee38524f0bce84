import {
  type ActionClass,
  ActionExecutor,
  type DatabaseRegistry,
  type EventClass,
  type ExecutionConfiguration,
  type ExecutorOptions,
  type ModelClass,
  type ModelEvent,
  type Principal,
  InvalidIdError,
  ShardIdentifier,
  type ShardingStrategy,
  openDatabases,
} from '@framework/core';
import {
  type AnyAction,
  type AnyEntity,
  type DeliverableEvent,
  type ModelMapper,
  decodeEvent,
  eventTypeOf,
  modelNameOf,
} from '@framework/core/adapter';
import { type AnyEventHandler, type DeliveryOverrides, EventHandlerRegistry } from '@framework/events';

import {
  type MemoryCommit,
  MemoryRepository,
  joinedManager,
  memoryManager,
  memory,
  memorySharding,
} from '../memory/index.js';
import { VirtualClock } from '../virtual-clock.js';
import { type EventOrigin, commitEvent } from './commit-event.js';
import { type DeliveryReport, driven } from './delivery-run.js';
import { type DeliverAllOptions, EnvironmentDelivery } from './environment-delivery.js';
import { SpecificationError } from './expectation.js';

const namespace = 'specification';

/** How one execution differs from the environment's defaults. */
export interface EnvironmentExecution extends ExecutionConfiguration {
  /** The principal. Default: the environment's principal. */
  readonly principal?: Principal;
}

/**
 * Everything that actions and handlers need, in memory and in virtual time, for whatever `given`, `when` and `then` cannot
 * express.
 *
 * Nothing is delivered before {@link TestEnvironment.deliverAll}. Executions and deliveries let time pass as they need it.
 *
 * ```ts
 * const environment = await TestEnvironment.open({ models: [Wallet, Transfer], actions, handlers });
 * await environment.store(source, destination);
 * const transfer = await environment.execute(InitiateTransferAction, { sourceId, destId, amount });
 * await environment.deliverAll();
 * ```
 */
export class TestEnvironment {
  readonly clock: VirtualClock;
  readonly databases: DatabaseRegistry;
  readonly executor: ActionExecutor;
  /** The handlers, by their names. */
  readonly handlers: EventHandlerRegistry;
  readonly #principal: Principal;
  readonly #repositories: EnvironmentRepositories;
  readonly #delivery: EnvironmentDelivery;

  private constructor(options: TestEnvironmentOptions) {
    const { models, actions, handlers, shards = [ShardIdentifier.of(0, 0)], groupCommit = false } = options;
    const clock = (this.clock = new VirtualClock(options.start));
    const databases = (this.databases = openDatabases(memorySharding(...shards), memory({ clock })));
    this.#principal = options.principal ?? { name: 'specification' };
    this.#repositories = new EnvironmentRepositories(models, databases);
    const setup = { clock, databases, repository: this.#repositories.of };
    this.handlers = new EventHandlerRegistry(handlers?.(setup) ?? []);
    this.executor = new ActionExecutor({
      namespace,
      databases,
      repositories: this.#repositories.all,
      actions: actions(setup),
      groupCommit,
      clock,
      random: () => 1,
    });
    this.#delivery = new EnvironmentDelivery({
      databases,
      executor: this.executor,
      handlers: this.handlers,
      models: this.#repositories.all.map(({ model }) => model),
      clock,
      settings: options.delivery ?? {},
    });
  }

  /** Creates an environment in which nothing has happened yet, and in which the handlers are registered. */
  static async open(options: TestEnvironmentOptions): Promise<TestEnvironment> {
    const environment = new TestEnvironment(options);
    await environment.deliverAll();
    return environment;
  }

  /** Finds the repository of a model, or a repository of your own by its class; see {@link EnvironmentSetup.repository}. */
  get repository(): RepositoryOf {
    return this.#repositories.of;
  }

  /** Everything that was committed, on all shards, in the order of the commits. */
  get commits(): readonly MemoryCommit[] {
    return this.databases
      .eachDatabase()
      .flatMap((managers) => joinedManager(managers).tables.commits)
      .sort((one, other) => one.position - other.position);
  }

  /** All events, on all shards, in the order of the commits. */
  get events(): readonly DeliverableEvent[] {
    return this.commits.flatMap(({ events }) => events);
  }

  /**
   * An event of the log as an instance of its class; without a class, as it is in the log.
   *
   * @throws UnreadableEventError `unreadable-event` when the class cannot read it
   */
  read({ id, type, modelId, modelName, payload }: DeliverableEvent, eventClass?: EventClass): unknown {
    if (eventClass === undefined) return { type, modelId, payload };
    const { model } = this.#repositories.ofName(modelName);
    return decodeEvent(eventClass, { id, model, modelId, payload });
  }

  /**
   * Stores models as initial data, without any event; those that were never stored get version 1.
   *
   * @throws SpecificationError `no-strategy` when an id does not contain its shard, and the model is listed without a strategy
   */
  async store(...models: readonly AnyEntity[]): Promise<void> {
    for (const model of models) {
      const repository = this.repository(model.constructor as ModelClass<AnyEntity>);
      await repository.put(model).catch((error: unknown) => {
        throw error instanceof InvalidIdError ? withoutStrategy(model, error) : error;
      });
    }
  }

  /** Executes an action; throws as the executor does. */
  execute<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    { principal = this.#principal, ...configuration }: EnvironmentExecution = {},
  ): Promise<Result> {
    return driven(this.executor.execute(principal, action, params, configuration), this.clock);
  }

  /**
   * Reads the models that were added or updated after the given number of commits, including deleted ones: in their present state,
   * and in the order of their first change.
   */
  async changedSince(commitCount: number): Promise<readonly AnyEntity[]> {
    const changes = this.commits
      .slice(commitCount)
      .flatMap((commit) => commit.changes.map(({ table, id }) => ({ shard: commit.shard, table, id })));
    const byKey = new Map(changes.map((change) => [`${change.table} ${change.id}`, change]));
    return [...byKey.values()].flatMap(({ shard, table, id }) => {
      const row = memoryManager(this.databases.transactionManager(shard)).rows(table).get(id);
      return row === undefined ? [] : [this.#repositories.ofName(table).modelOf(row)];
    });
  }

  /**
   * Delivers until nothing is pending or due, including what the handlers' actions commit; time passes for retries.
   *
   * @throws SpecificationError `dead-letter` when a handler gave up on an event, `never-idle` when handlers never stop
   */
  deliverAll(options?: DeliverAllOptions): Promise<DeliveryReport> {
    return this.#delivery.all(options);
  }

  /** Delivers every event from the beginning once more, as after a crash that lost the cursors. */
  redeliverAll(options?: DeliverAllOptions): Promise<DeliveryReport> {
    for (const tables of this.#delivery.tables) tables.moveCursors(0);
    return this.deliverAll(options);
  }

  /**
   * Commits one event and delivers it; what the handlers' actions commit is not delivered yet.
   *
   * `times` is how often it is delivered, as can happen after crashes. Default 1.
   *
   * @throws SpecificationError `unwanted-event` when no handler wants it
   */
  async handle(
    event: ModelEvent<unknown>,
    { times = 1, ...origin }: EventOrigin & { readonly times?: number } = {},
  ): Promise<DeliveryReport> {
    const type = eventTypeOf(event.constructor as unknown as EventClass);
    const isWanted = this.handlers.handlers.some(({ eventClasses }) => eventClasses?.has(type) ?? true);
    if (!isWanted) {
      throw new SpecificationError('unwanted-event', `No handler wants ${type}: add one that does`);
    }
    const tables = await commitEvent(
      event,
      { principal: this.#principal, ...origin },
      {
        databases: this.databases,
        repositories: this.#repositories.all,
        namespace,
        clock: this.clock,
      },
    );
    return this.#delivery.committed(tables, times);
  }
}

/** The class of a repository in memory with queries of its own. */
export type MemoryRepositoryClass<R> = new (databases: DatabaseRegistry) => R;

/** What actions and handlers are created with. */
export interface EnvironmentSetup {
  readonly clock: VirtualClock;
  readonly databases: DatabaseRegistry;
  /**
   * Finds the repository of a model by the model's class, or a repository of your own by its class, which extends
   * `MemoryRepository`.
   *
   * @throws SpecificationError `unknown-model` when the specification does not list it
   */
  readonly repository: RepositoryOf;
}

/** Finds a repository by its class, or by the class of its models. */
export interface RepositoryOf {
  /** Finds a repository by its class; throws SpecificationError `unknown-model` when the class is not listed. */
  <R extends MemoryRepository<AnyEntity>>(repository: MemoryRepositoryClass<R>): R;
  /** Finds a repository by the class of its models; throws SpecificationError `unknown-model` when the class is not listed. */
  <M extends AnyEntity>(model: ModelClass<M>): MemoryRepository<M>;
}

/** A model with the strategy of its repository. */
export interface PlacedModel {
  readonly model: ModelClass<AnyEntity>;
  readonly strategy: ShardingStrategy;
}

/** The parts of an application that a specification uses. */
export interface TestEnvironmentOptions {
  /**
   * The models that are stored. If the shard of a model is not in the bits of its id, list it with its strategy; if it has
   * queries of its own, list the class of its repository in memory.
   */
  readonly models: readonly (
    ModelClass<AnyEntity> | PlacedModel | MemoryRepositoryClass<MemoryRepository<AnyEntity>>
  )[];
  /** Creates the actions, including those that only handlers execute. */
  readonly actions: (setup: EnvironmentSetup) => readonly AnyAction[];
  /** Creates the handlers. Default: none. */
  readonly handlers?: (setup: EnvironmentSetup) => readonly AnyEventHandler[];
  /** The shards, each in a database of its own; the first is the default. Default: shard (0, 0). */
  readonly shards?: readonly [ShardIdentifier, ...ShardIdentifier[]];
  /** The principal of the actions. Default: `specification`. */
  readonly principal?: Principal;
  /** The executor's option of this name: whether, or how, plans of concurrent executions are written together. Default false. */
  readonly groupCommit?: ExecutorOptions['groupCommit'];
  /** Overrides of the settings of delivery, such as `retry`. */
  readonly delivery?: DeliveryOverrides;
  /** The time at which the clock starts. Default: 2026-01-01T00:00:00Z. */
  readonly start?: Date;
}

type Listed = TestEnvironmentOptions['models'][number];

/** The repositories of an environment: one for each model. */
export class EnvironmentRepositories {
  /** All repositories, by the listed classes and by the classes of their models. */
  readonly #byClass = new Map<unknown, MemoryRepository<AnyEntity>>();

  constructor(listed: readonly Listed[], databases: DatabaseRegistry) {
    for (const each of listed) {
      const repository = repositoryOf(each, databases);
      this.#byClass.set(each, repository);
      this.#byClass.set(repository.model, repository);
    }
  }

  /** All repositories, for the executor. */
  get all(): readonly ModelMapper[] {
    return [...new Set(this.#byClass.values())];
  }

  /** Finds a repository by a listed class, or by the class of its models. */
  readonly of: RepositoryOf = (listed: { readonly name: string }) => {
    const repository = this.#byClass.get(listed);
    if (repository === undefined) throw unknownModel(listed.name);
    // The map's key is the class of its value, or of the models that it stores.
    return repository as never;
  };

  /** Finds a repository by the name of its model. */
  ofName(modelName: string): MemoryRepository<AnyEntity> {
    for (const repository of this.#byClass.values())
      if (modelNameOf(repository.model) === modelName) return repository;
    throw unknownModel(modelName);
  }
}

function repositoryOf(listed: Listed, databases: DatabaseRegistry): MemoryRepository<AnyEntity> {
  if (typeof listed === 'object') return new MemoryRepository({ ...listed, databases });
  return isRepositoryClass(listed)
    ? new listed(databases)
    : new MemoryRepository({ model: listed, databases });
}

function isRepositoryClass(
  listed: Exclude<Listed, PlacedModel>,
): listed is MemoryRepositoryClass<MemoryRepository<AnyEntity>> {
  return listed.prototype instanceof MemoryRepository;
}

function withoutStrategy(model: AnyEntity, cause: InvalidIdError): SpecificationError {
  const name = modelNameOf(model.constructor as ModelClass<AnyEntity>);
  return new SpecificationError(
    'no-strategy',
    `The id ${model.id.value} of ${name} contains no shard: list the model with its strategy, models: [{ model: ${name}, strategy }]`,
    { cause },
  );
}

function unknownModel(name: string): SpecificationError {
  return new SpecificationError('unknown-model', `The specification does not list ${name}: add it to models`);
}

import {
  type ActionClass,
  ActionExecutor,
  type AnyEntity,
  type DatabaseRegistry,
  type DeliverableEvent,
  type EventClass,
  type ExecutionConfiguration,
  type ModelClass,
  type ModelEvent,
  type Principal,
  ShardIdentifier,
  decodeEvent,
  eventTypeOf,
  openDatabases,
} from '@framework/core';
import { EventHandlerRegistry } from '@framework/events';
import { type MemoryCommit, joinedManager, memory, memorySharding } from '../../memory/index.js';
import { VirtualClock } from '../../virtual-clock.js';
import type { DeliveryReport } from '../delivery/delivery-run.js';
import { driven } from '../delivery/driven.js';
import { type DeliverAllOptions, WorldDelivery } from '../delivery/world-delivery.js';
import { SpecificationError } from '../specification-error.js';
import { type EventOrigin, commitEvent } from './commit-event.js';
import { WorldRepositories } from './world-repositories.js';
import type { RepositoryOf, WorldOptions } from './world-setup.js';

const namespace = 'specification';

/** How one execution differs from the world's defaults. */
export interface WorldExecution extends ExecutionConfiguration {
  /** Who asks. Default: the world's principal. */
  readonly principal?: Principal;
}

/**
 * Everything that actions and handlers need, in memory and in virtual time: for what `given`, `when` and `then` cannot
 * say.
 *
 * Nothing is delivered before {@link World.deliverAll}. Executions and deliveries let time pass as they need it.
 *
 * ```ts
 * const world = await World.open({ models: [Wallet, Transfer], actions, handlers });
 * await world.store(source, destination);
 * const transfer = await world.execute(InitiateTransferAction, { sourceId, destId, amount });
 * await world.deliverAll();
 * ```
 */
export class World {
  readonly clock: VirtualClock;
  readonly databases: DatabaseRegistry;
  readonly executor: ActionExecutor;
  /** The handlers, under their names. */
  readonly handlers: EventHandlerRegistry;
  readonly #principal: Principal;
  readonly #repositories: WorldRepositories;
  readonly #delivery: WorldDelivery;

  private constructor(options: WorldOptions) {
    const { models, actions, handlers, shards = [ShardIdentifier.of(0, 0)], groupCommit = false } = options;
    const clock = (this.clock = new VirtualClock(options.start));
    const databases = (this.databases = openDatabases(memorySharding(...shards), memory({ clock })));
    this.#principal = options.principal ?? { name: 'specification' };
    this.#repositories = new WorldRepositories(models, databases);
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
    this.#delivery = new WorldDelivery({
      databases,
      executor: this.executor,
      handlers: this.handlers,
      models: this.#repositories.all.map(({ model }) => model),
      clock,
      settings: options.delivery ?? {},
    });
  }

  /** Makes a world in which nothing has happened yet, and in which the handlers are registered. */
  static async open(options: WorldOptions): Promise<World> {
    const world = new World(options);
    await world.deliverAll();
    return world;
  }

  /** The repository of a model, or of a class of your own; see {@link WorldSetup.repository}. */
  get repository(): RepositoryOf {
    return this.#repositories.of;
  }

  /** All that was committed, on all shards, in the order of the commits. */
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
   * An event of the log as an instance of its class; without a class, as it stands in the log.
   *
   * @throws UnstorableValueException `unstorable-value` when the class cannot read it
   */
  read({ type, modelId, modelName, payload }: DeliverableEvent, eventClass?: EventClass): unknown {
    if (eventClass === undefined) return { type, modelId, payload };
    return decodeEvent(eventClass, { model: this.#repositories.ofName(modelName).model, modelId, payload });
  }

  /** Stores models as what was there before: without any event, and at version 1 those that were never stored. */
  async store(...models: readonly AnyEntity[]): Promise<void> {
    for (const model of models) {
      await this.repository(model.constructor as ModelClass<AnyEntity>).put(model);
    }
  }

  /** Executes an action; throws as the executor does. */
  execute<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    { principal = this.#principal, ...configuration }: WorldExecution = {},
  ): Promise<Result> {
    return driven(this.executor.execute(principal, action, params, configuration), this.clock);
  }

  /**
   * The models that were added or updated after the first so many commits, as they are now, in the order of their first
   * change; deleted ones, too.
   */
  async changedSince(commitCount: number): Promise<readonly AnyEntity[]> {
    const changes = this.commits.slice(commitCount).flatMap((commit) => commit.changes);
    const byKey = new Map(changes.map((change) => [`${change.table} ${change.id}`, change]));
    const models = await Promise.all(
      [...byKey.values()].map(({ table, id }) => this.#repositories.ofName(table).findStored(id)),
    );
    return models.filter((model) => model !== undefined);
  }

  /**
   * Delivers until nothing is pending or due, what the handlers' actions commit included; time passes for retries.
   *
   * @throws SpecificationError `dead-letter` when a handler gave an event up, `restless` when handlers go on and on
   */
  deliverAll(options?: DeliverAllOptions): Promise<DeliveryReport> {
    return this.#delivery.all(options);
  }

  /** Delivers every event since the beginning once more, as after a crash in which the cursors were lost. */
  redeliverAll(options?: DeliverAllOptions): Promise<DeliveryReport> {
    for (const tables of this.#delivery.tables) tables.moveCursors(0);
    return this.deliverAll(options);
  }

  /**
   * Commits one event and delivers it; what the handlers' actions commit is not delivered yet.
   *
   * `times` is how often it is delivered, as a crash may have it. Default 1.
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
      throw new SpecificationError('unwanted-event', `No handler wants ${type}: add the one that does`);
    }
    const tables = await commitEvent(
      event,
      { principal: this.#principal, ...origin },
      {
        databases: this.databases,
        namespace,
        clock: this.clock,
      },
    );
    return this.#delivery.committed(tables, times);
  }
}

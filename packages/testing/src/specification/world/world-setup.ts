import type {
  AnyAction,
  AnyEntity,
  DatabaseRegistry,
  ExecutorOptions,
  ModelClass,
  Principal,
  ShardIdentifier,
} from '@framework/core';
import type { AnyEventHandler, DeliveryOverrides } from '@framework/events';
import type { MemoryRepository } from '../../memory/index.js';
import type { VirtualClock } from '../../virtual-clock.js';

/** The class of a repository in memory with queries of its own. */
export type MemoryRepositoryClass<R> = new (databases: DatabaseRegistry) => R;

/** What actions and handlers are made with. */
export interface WorldSetup {
  readonly clock: VirtualClock;
  readonly databases: DatabaseRegistry;
  /**
   * The repository of a model, or of a class of your own that extends `MemoryRepository`.
   *
   * @throws SpecificationError `unknown-model` when the specification does not list it
   */
  readonly repository: RepositoryOf;
}

/** Finds a repository by its class, or by that of its models. */
export interface RepositoryOf {
  <R extends MemoryRepository<AnyEntity>>(repository: MemoryRepositoryClass<R>): R;
  <M extends AnyEntity>(model: ModelClass<M>): MemoryRepository<M>;
}

/** What a specification is about. */
export interface WorldOptions {
  /** The models that are stored; for one with queries of its own, the class of its repository in memory. */
  readonly models: readonly (ModelClass<AnyEntity> | MemoryRepositoryClass<MemoryRepository<AnyEntity>>)[];
  /** Makes the actions, also those that only handlers execute. */
  readonly actions: (setup: WorldSetup) => readonly AnyAction[];
  /** Makes the handlers. Default: none. */
  readonly handlers?: (setup: WorldSetup) => readonly AnyEventHandler[];
  /** The shards, each in a database of its own; the first is the default. Default: shard (0, 0). */
  readonly shards?: readonly [ShardIdentifier, ...ShardIdentifier[]];
  /** Who executes the actions. Default: `specification`. */
  readonly principal?: Principal;
  /** Whether the plans of concurrent executions are written together, or how; as the service has it. Default false. */
  readonly groupCommit?: ExecutorOptions['groupCommit'];
  /** What to change in the settings of delivery, such as `retry`. */
  readonly delivery?: DeliveryOverrides;
  /** When the clock starts. Default: 2026-01-01T00:00:00Z. */
  readonly start?: Date;
}

import {
  ActionExecutor,
  type DatabaseRegistry,
  type ExecutorOptions,
  FrameworkError,
  type ShardIdentifier,
  openDatabases,
} from '@framework/core';
import type { ShardingConfig } from '@framework/core/adapter';
import { Delivery } from '@framework/events';

import { MemoryFaults, type MemoryMessage, memory } from '../memory/index.js';
import { EnvironmentRepositories } from '../specification/test-environment.js';
import { GracefulStop } from './graceful-stop.js';
import type { HandlerVersions } from './handler-versions.js';
import { type History, codeOf } from './history.js';
import type { NetworkFaults, NetworkPeer } from './network-faults.js';
import type { DeliveryWatch } from './reference/delivery-watch.js';
import type { RunSettings } from './run-settings.js';
import { type Scheduler, SimulatedClock, StepOwner } from './scheduler.js';
import type { SimulatedServer } from './simulated-server.js';
import type { SimulationGiven, SimulationOptions } from './simulation-options.js';
import { watchedHandlers } from './watched-handlers.js';

/** The namespace of everything that simulated processes write. */
const namespace = 'simulation';

/** What the processes of a run share. */
export interface ProcessDependencies {
  readonly options: SimulationOptions<SimulationGiven>;
  readonly scheduler: Scheduler;
  readonly server: SimulatedServer;
  readonly faults: NetworkFaults;
  readonly history: History;
  readonly watch: DeliveryWatch;
  readonly start: Date;
  readonly executor: Pick<ExecutorOptions, 'groupCommit' | 'modelLocks'>;
  readonly delivery: RunSettings['delivery'];
  readonly versions: HandlerVersions;
  readonly randomOf: (name: string) => () => number;
  /** Called when a fault on a message to a database crashes a process. */
  readonly onCrash: (process: SimulatedProcess) => void;
  /** Called when a process requests a restart because it cannot continue by itself. */
  readonly onRestartNeeded: (process: SimulatedProcess) => void;
}

/** One process of the application: it executes actions and delivers events until it is killed. */
export class SimulatedProcess implements NetworkPeer {
  readonly owner: StepOwner;
  readonly clock: SimulatedClock;
  readonly executor: ActionExecutor;
  /** The shards in its configuration. */
  readonly shards: readonly ShardIdentifier[];
  /** The version of its code. */
  readonly version: number;
  /** Resolves when the process has ended, by itself or because it was killed. */
  readonly killed: Promise<void>;
  readonly #dependencies: ProcessDependencies;
  readonly #cutOff = new Set<ShardIdentifier>();
  readonly #stop: GracefulStop;
  #notifyKilled!: () => void;

  /**
   * Starts the process on the databases of the run.
   *
   * @param has.shards the shards in its configuration
   * @param has.version the version of its code, which determines its handlers
   */
  constructor(
    name: string,
    { shards, version }: Pick<SimulatedProcess, 'shards' | 'version'>,
    dependencies: ProcessDependencies,
  ) {
    const { options, scheduler, server, history, start, randomOf } = dependencies;
    this.#dependencies = dependencies;
    this.shards = shards;
    this.version = version;
    this.owner = new StepOwner(name);
    this.clock = new SimulatedClock(scheduler, this.owner, start);
    this.killed = new Promise((resolve) => (this.#notifyKilled = resolve));
    const databases = openDatabases(
      configOf(server.sharding, shards),
      memory({
        server: server.memory,
        faults: new MemoryFaults((message) => this.#pass(message)),
      }),
    );
    const repositories = new EnvironmentRepositories(options.models, databases);
    const setup = { clock: this.clock, databases, repository: repositories.of, version };
    const stop = (this.#stop = new GracefulStop({
      owner: this.owner,
      clock: this.clock,
      server,
      history,
      databases,
      shards,
      stopTimeoutMs: dependencies.delivery.stopTimeoutMs,
    }));
    const handlers = options.handlers?.(setup) ?? [];
    this.executor = new ActionExecutor({
      ...dependencies.executor,
      namespace,
      databases,
      repositories: repositories.all,
      actions: options.actions(setup),
      ...(options.idempotency && { idempotency: options.idempotency }),
      ...(options.retry && { retry: options.retry }),
      clock: this.clock,
      random: randomOf(`chance of ${name}`),
    });
    if (handlers.length === 0) return;
    const delivery = new Delivery({
      databases: stop.watched,
      executor: this.executor,
      handlers: watchedHandlers(handlers, {
        history,
        watch: dependencies.watch,
        nameOf: (handler) => dependencies.versions.nameOf(handler),
        owner: this.owner,
        clock: this.clock,
        timeoutMs: dependencies.delivery.timeoutMs,
        onRunning: (change) => stop.handlerCalls(change),
      }),
      models: repositories.all.map(({ model }) => model),
      settings: dependencies.delivery,
      clock: this.clock,
      random: randomOf(`delivery of ${name}`),
      onError: (error) => this.#failed(error),
      onRecovered: () => undefined,
      onLeaseLost: () => undefined,
      onAttemptFailed: ({ willRetry }) => history.count(willRetry ? 'failed attempt' : 'dead letter'),
      onRestartNeeded: () => {
        history.count('restart needed');
        dependencies.onRestartNeeded(this);
      },
    });
    stop.delivery = delivery;
    delivery.start();
  }

  get isAlive(): boolean {
    return this.owner.state !== 'dead';
  }

  /** Whether it can execute every action: it is alive, knows all shards and is not stopping. */
  get isServing(): boolean {
    const isComplete = this.shards.length === this.#dependencies.server.sharding.members.length;
    return this.isAlive && isComplete && !this.isStopping;
  }

  /** Whether it is being stopped. */
  get isStopping(): boolean {
    return this.#stop.hasBegun;
  }

  /** Executes an action for a client. */
  serve<T>(execute: (executor: ActionExecutor) => Promise<T>): Promise<T> {
    return this.#stop.awaiting(execute(this.executor));
  }

  disturb(shard: ShardIdentifier): void {
    this.#stop.disturb(shard);
  }

  doneLate(message: MemoryMessage): void {
    const { watch, server } = this.#dependencies;
    watch.answered(this, message, server.memory.tables(message.shard), true);
  }

  isCutOff(shard: ShardIdentifier): boolean {
    return this.#cutOff.has(shard);
  }

  /** Cuts its connections to the database of a shard until the returned function is called. */
  cutOff(shard: ShardIdentifier): () => void {
    this.#cutOff.add(shard);
    return () => void this.#cutOff.delete(shard);
  }

  /** Stops the process as an operator would. Calls back in a separate step when it has ended by itself. */
  stop(onEnded: () => void): void {
    const { scheduler } = this.#dependencies;
    this.#stop.hasBegun = true;
    scheduler.after(this.owner, 0, 'is stopped', () => void this.#untilStopped(onEnded));
  }

  /** Ends the process at once: none of its steps runs any more. */
  kill(): void {
    if (!this.isAlive) return;
    this.#dependencies.history.count('process killed');
    this.end();
  }

  /** Ends the process and releases everything that belongs to it. */
  end(): void {
    this.#dependencies.scheduler.kill(this.owner);
    this.clock.end();
    this.#notifyKilled();
  }

  crash(): void {
    this.kill();
    this.#dependencies.onCrash(this);
  }

  async #untilStopped(onEnded: () => void): Promise<void> {
    await this.#stop.run();
    if (!this.isAlive) return;
    this.end();
    onEnded();
  }

  #pass(message: MemoryMessage): Promise<void> | undefined {
    const { faults, watch, server } = this.#dependencies;
    const { operation, shard, way, error } = message;
    if (operation === 'notifications.hear') return faults.pass(this, message);
    const tables = server.memory.tables(shard);
    const isRenewal = operation === 'leases.renew' && error === undefined;
    // The watch must see the answer even if the process has ended since its request.
    if (way === 'answer' && error === undefined) watch.answered(this, message, tables);
    if (way === 'request' && isRenewal) watch.asksForLeases(this.owner, tables);
    const arrival = faults.pass(this, message);
    if (way === 'answer' && isRenewal) {
      const arrived = (): void => watch.getsLeases(this.owner, tables);
      if (arrival === undefined) arrived();
      else arrival.then(arrived, () => undefined);
    }
    return arrival;
  }

  #failed(error: unknown): void {
    const { history } = this.#dependencies;
    history.count('delivery error');
    const isBug =
      FrameworkError.find(error)?.code === 'invariant-violation' ||
      error instanceof TypeError ||
      error instanceof ReferenceError;
    if (isBug) history.violations.push(`delivery of ${this.owner.name} reports a bug: ${codeOf(error)}`);
  }
}

/** The configuration of a process that knows only some of the shards. */
function configOf(sharding: ShardingConfig, shards: readonly ShardIdentifier[]): ShardingConfig {
  const members = sharding.members.filter(({ shard }) => shards.includes(shard));
  const [first] = members;
  const isDefaultKnown = shards.includes(sharding.defaultShard);
  return {
    ...sharding,
    members,
    defaultShard: isDefaultKnown || !first ? sharding.defaultShard : first.shard,
  };
}

/** Opens a registry without faults, for everything outside of the simulated processes. */
export function openFaultless(server: SimulatedServer, faults = new MemoryFaults()): DatabaseRegistry {
  return openDatabases(server.sharding, memory({ server: server.memory, faults }));
}

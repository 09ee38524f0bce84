import type {
  Clock,
  DatabaseRegistry,
  ExecutorOptions,
  ModelClass,
  Principal,
  ShardIdentifier,
} from '@framework/core';
import type { AnyAction, AnyEntity, DeliverableEvent } from '@framework/core/adapter';
import type { AnyEventHandler, DeliveryOverrides } from '@framework/events';

import type { MemoryCommit } from '../memory/index.js';
import type { RepositoryOf, TestEnvironmentOptions } from '../specification/test-environment.js';
import type { Choices } from './choices.js';
import type { CallRecord, SimulationCall } from './history.js';

/** Faults of whole processes and databases. */
export const nemesisKinds = [
  'kill',
  'pause',
  'clock-jump',
  'outage',
  'partition',
  'failover',
  'lossy-failover',
  'operator-pause',
  'operator-replay',
  'notification',
  'fewer-shards',
  'stop',
  'rollout',
] as const;

export type NemesisKind = (typeof nemesisKinds)[number];

/** Faults of a single message to a database or back. */
export const passageFaultKinds = [
  'slow',
  'deadlock',
  'lock-wait',
  'unavailable',
  'request-lost',
  'answer-lost',
  'late-commit',
  'silent',
  'crash-before',
  'crash-after',
] as const;

export type NetworkFaultKind = (typeof passageFaultKinds)[number];

/** Everything that can go wrong in a run. */
export type FaultKind = NemesisKind | NetworkFaultKind;

/** What a simulated process offers to its actions and handlers. */
export interface ProcessSetup {
  /** The process's own clock. All waiting must use it, or runs cannot be repeated. */
  readonly clock: Clock;
  readonly databases: DatabaseRegistry;
  readonly repository: RepositoryOf;
  /** Which version of the code the process runs. 0 is the latest one. */
  readonly version: number;
}

/** The state before the calls start. */
export interface SimulationGiven {
  /** The models to store. */
  readonly models: readonly AnyEntity[];
}

/** What to simulate, and which invariants must hold. */
export interface SimulationOptions<Given extends SimulationGiven> {
  /** The models that are stored; for a model with queries of its own, the class of its repository in memory. */
  readonly models: TestEnvironmentOptions['models'];
  /** Makes the actions of a process, including those that only handlers execute. */
  readonly actions: (setup: ProcessSetup) => readonly AnyAction[];
  /** Makes the handlers of a process. Default: none. */
  readonly handlers?: (setup: ProcessSetup) => readonly AnyEventHandler[];
  /**
   * How many versions of the code there are, for runs with the fault `rollout`: processes of several versions run side
   * by side, with the handlers that `handlers` makes for each `version`. Version 0 is the latest one. It must have
   * every handler, know all former names, and want all events that the others want, because every run ends with it.
   * Default 1.
   */
  readonly versions?: number;
  /** The shards, each in its own database; the first is the default. Default: shard (0, 0). */
  readonly shards?: readonly [ShardIdentifier, ...ShardIdentifier[]];
  /**
   * Makes the state before the calls start: the models to store under `models`, and anything else that the calls need.
   */
  readonly given: (choices: Choices) => Given;
  /** Makes the next call of a client; `undefined` for none. */
  readonly call: (choices: Choices, given: Given) => SimulationCall | undefined;
  /**
   * Starts watching an invariant of your own that must hold after every commit. Returns a listener that receives the
   * commits of all databases, in the order in which they were made, and throws when the invariant is broken. After a
   * failover with losses, a new listener receives the remaining commits.
   */
  readonly watch?: (given: Given) => CommitListener;
  /** Checks an invariant of your own when everything has come to rest; throws when it is broken. */
  readonly check?: (state: SimulationState<Given>) => void | Promise<void>;
  /** The maximum number of calls in a run. Default 60. */
  readonly callsMax?: number;
  /**
   * The faults that a run may have. Default: all except `lossy-failover`, after which acknowledged writes may be
   * missing.
   */
  readonly faults?: readonly FaultKind[];
  /**
   * How long a request to a database takes, and how long its answer, in milliseconds, so that a check can measure how quickly
   * something is done. Default 0: only waits take time.
   */
  readonly latencyMs?: number;
  /** Whether dead letters may remain after everything has come to rest and they were replayed. Default false. */
  readonly deadLettersMayStay?: boolean;
  /** The principal of the calls. Default: `simulation`. */
  readonly principal?: Principal;
  /** The executors' option of this name. Default: chosen for each run. */
  readonly groupCommit?: ExecutorOptions['groupCommit'];
  /** The executors' option of this name. Default: chosen for each run. */
  readonly modelLocks?: ExecutorOptions['modelLocks'];
  /** Changes to the executors' settings of idempotency keys. */
  readonly idempotency?: ExecutorOptions['idempotency'];
  /** Changes to the executors' retry policy. */
  readonly retry?: ExecutorOptions['retry'];
  /** Changes to the settings of delivery, whose times are short by default. */
  readonly delivery?: DeliveryOverrides;
  /** The time at which the clocks start. Default: 2026-01-01T00:00:00Z. */
  readonly start?: Date;
  /** How many steps a run may take before it counts as endless. Default 200,000. */
  readonly stepsMax?: number;
}

/** A commit of a run, for an invariant that must hold after each commit. */
export interface WatchedCommit extends Omit<MemoryCommit, 'changes'> {
  /** The models of a class that the commit added or changed, as it left them. */
  changed<M extends AnyEntity>(model: ModelClass<M>): readonly M[];
}

/** Receives each commit, and throws when an invariant is broken after it. */
export type CommitListener = (commit: WatchedCommit) => void;

/** The state after a run, for invariants of your own. */
export interface SimulationState<Given> {
  readonly given: Given;
  /** Finds a repository by its class or by the class of its models. It reads the current state. */
  readonly repository: RepositoryOf;
  /** All commits that were not lost, by database, in the order of each database. */
  readonly commits: readonly MemoryCommit[];
  readonly events: readonly DeliverableEvent[];
  /** All calls with their outcomes. */
  readonly calls: readonly CallRecord[];
  /** How often each kind of situation occurred, such as a `dead letter`. */
  readonly counts: ReadonlyMap<string, number>;
  /** Whether the database of a shard was down at any time between two moments. */
  readonly wasDown: (shard: ShardIdentifier, since: Date, until: Date) => boolean;
  /** Whether a failover has lost commits, so that acknowledged writes may be missing. */
  readonly hasLosses: boolean;
}

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

/** What can happen to processes and databases as a whole. */
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

/** What can happen on one way to a database or back. */
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

export type PassageFaultKind = (typeof passageFaultKinds)[number];

/** What can go wrong in a run. */
export type FaultKind = NemesisKind | PassageFaultKind;

/** What the actions and handlers of one simulated process are made with. */
export interface ProcessSetup {
  /** The process's own clock: whatever waits must wait by it, or a run is not the same again. */
  readonly clock: Clock;
  readonly databases: DatabaseRegistry;
  readonly repository: RepositoryOf;
  /** Which version of the code it runs, from 0, the last one. */
  readonly version: number;
}

/** What is there before the calls begin. */
export interface SimulationGiven {
  /** The models to be stored. */
  readonly models: readonly AnyEntity[];
}

/** What is simulated, and what must be true of it. */
export interface SimulationOptions<Given extends SimulationGiven> {
  /** The models that are stored; for one with queries of its own, the class of its repository in memory. */
  readonly models: TestEnvironmentOptions['models'];
  /** Makes the actions of a process, also those that only handlers execute. */
  readonly actions: (setup: ProcessSetup) => readonly AnyAction[];
  /** Makes the handlers of a process. Default: none. */
  readonly handlers?: (setup: ProcessSetup) => readonly AnyEventHandler[];
  /**
   * How many versions of the code there are, for runs with the fault `rollout`: processes of several ones run side by side, with what
   * `handlers` makes for each `version`. 0 is the last one, which has every handler, knows all their former names, and wants all events
   * that others want: with it every run ends. Default 1.
   */
  readonly versions?: number;
  /** The shards, each in a database of its own; the first is the default. Default: shard (0, 0). */
  readonly shards?: readonly [ShardIdentifier, ...ShardIdentifier[]];
  /** What is there before the calls begin: under `models` the models to be stored, and whatever else the calls need. */
  readonly given: (choices: Choices) => Given;
  /** The next call of a client; `undefined` for none. */
  readonly call: (choices: Choices, given: Given) => SimulationCall | undefined;
  /**
   * Begins to watch an own invariant that holds after every commit, and gives what is told each of them, those of all databases in their
   * order; that throws when the invariant does not hold. After a failover that has lost commits it begins again, and is told what is left.
   */
  readonly watch?: (given: Given) => CommitListener;
  /** Checks an own invariant when everything has come to rest; throws when it does not hold. */
  readonly check?: (state: SimulationState<Given>) => void | Promise<void>;
  /** How many calls a run has at most. Default 60. */
  readonly callsMax?: number;
  /** The faults that a run may have. Default: all but `lossy-failover`, after which acknowledged writes may be gone. */
  readonly faults?: readonly FaultKind[];
  /** Whether dead letters may be left when everything has come to rest and they were replayed. Default false. */
  readonly deadLettersMayStay?: boolean;
  /** Who executes the actions. Default: `simulation`. */
  readonly principal?: Principal;
  /** Default: chosen for each run. */
  readonly groupCommit?: ExecutorOptions['groupCommit'];
  /** Default: chosen for each run. */
  readonly modelLocks?: ExecutorOptions['modelLocks'];
  readonly idempotency?: ExecutorOptions['idempotency'];
  /** What to change in the executors' retry policy. */
  readonly retry?: ExecutorOptions['retry'];
  /** What to change in the settings of delivery, which are short by default. */
  readonly delivery?: DeliveryOverrides;
  /** When the clocks start. Default: 2026-01-01T00:00:00Z. */
  readonly start?: Date;
  /** How many steps a run may take before it counts as endless. Default 200,000. */
  readonly stepsMax?: number;
}

/** A commit of a run, for an invariant that holds after each of them. */
export interface WatchedCommit extends Omit<MemoryCommit, 'changes'> {
  /** The models of a class that it added or changed, as it left them. */
  changed<M extends AnyEntity>(model: ModelClass<M>): readonly M[];
}

/** Is told each commit; throws when an invariant does not hold after it. */
export type CommitListener = (commit: WatchedCommit) => void;

/** What a run has left behind, for own invariants. */
export interface SimulationState<Given> {
  readonly given: Given;
  /** Finds a repository by its class, or by that of its models; reads what is stored now. */
  readonly repository: RepositoryOf;
  /** All that was committed and is still there, by databases, in the order of their commits. */
  readonly commits: readonly MemoryCommit[];
  readonly events: readonly DeliverableEvent[];
  /** All calls, with their outcomes. */
  readonly calls: readonly CallRecord[];
  /** Whether a failover has lost commits, so that acknowledged writes may be gone. */
  readonly hasLosses: boolean;
}

import {
  type ActionExecutor,
  type Clock,
  ConfigurationError,
  type DatabaseRegistry,
  FrameworkError,
  InvariantViolationError,
  type ModelClass,
  type ShardIdentifier,
  UnknownShardError,
  systemClock,
} from '@framework/core';
import { type Observer, observeWith, outsideRequests, randomUuid } from '@framework/core/adapter';
import { hostname } from 'node:os';

import { type AttemptFailureHook, errorText, logAttemptFailure } from './call/attempt-failure.js';
import {
  AbandonedCalls,
  type RestartHook,
  type RestartNeed,
  TurnTime,
  logRestartNeed,
} from './call/call-deadlines.js';
import { DatabaseWorker, type StartFailure } from './database-worker.js';
import { type DeliveryOverrides, type EngineSettings, engineSettings } from './delivery-settings.js';
import { EventHandlerRegistry } from './handler/event-handler-registry.js';
import type { AnyEventHandler } from './handler/event-handler.js';
import type { LeaseLoss, LeaseLossHook } from './slots/lease-keeper.js';
import { QuarantineGate } from './subscription/quarantine.js';
import { quiet } from './worker-context.js';

/** What a delivery needs. */
export interface DeliveryOptions {
  readonly databases: Pick<DatabaseRegistry, 'deliveries'>;
  /**
   * Wakes the delivery at each commit, executes the handlers' actions, and refuses to stage other event classes with the same
   * names.
   */
  readonly executor: Pick<ActionExecutor, 'execute' | 'onCommit'> &
    Partial<Pick<ActionExecutor, 'claimEventTypes'>>;
  /** Processes that deliver the events of one database may have different handlers; each works only for its own. */
  readonly handlers: readonly AnyEventHandler[] | EventHandlerRegistry;
  /** Overrides of the default settings. */
  readonly settings?: DeliveryOverrides;
  /** The classes that `event.model` returns; for other models it returns an empty class with the model's name. */
  readonly models?: readonly ModelClass<unknown>[];
  /** Traces and measures the calls of handlers, such as `new Telemetry()` of `@framework/telemetry`. Default: none. */
  readonly observer?: Observer;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Returns a number from 0 to 1, for jitter. Default: `Math.random`. */
  readonly random?: () => number;
  /**
   * Called with each error that no caller waits for, such as one of a database that is down, and with the shards of that
   * database. During an outage, each error text is reported once. Default: standard error.
   */
  readonly onError?: (error: unknown, shards: readonly ShardIdentifier[]) => void;
  /** Called once at the end of an outage that was reported, with the shards of the database. Default: standard error. */
  readonly onRecovered?: (shards: readonly ShardIdentifier[]) => void;
  /** Called for every handler call that did not succeed. Default: a line on standard error. */
  readonly onAttemptFailed?: AttemptFailureHook;
  /**
   * Called when this process has lost leases: it has stopped working in their slots, and events whose handling it had begun are
   * delivered again. It requests new leases immediately. Default: a line on standard error.
   */
  readonly onLeaseLost?: LeaseLossHook;
  /**
   * Called once when this process must be restarted, because calls of its handlers hang and nothing ends them. It has then
   * stopped delivering and given its leases back, so that other processes take over. Default: a line on standard error.
   */
  readonly onRestartNeeded?: RestartHook;
}

/**
 * Delivers the events of all databases to handlers: each at least once, those of one model in order.
 *
 * Any number of processes may deliver the events of the same databases; they share the work with leases. Await {@link Delivery.stop}
 * before the databases are closed.
 *
 * @example apps/wallet-service/test/documents.test.ts
 *
 * ```ts
 * const delivery = new Delivery({ databases, executor, handlers: [new NotifyRecipientOnDeposit()] });
 * delivery.start();
 * await delivery.started();
 * ```
 */
export class Delivery {
  readonly #settings: EngineSettings;
  readonly #workers: readonly DatabaseWorker[];
  readonly #byShard = new Map<unknown, DatabaseWorker>();
  readonly #executor: Pick<ActionExecutor, 'onCommit'>;
  #ignoreCommits: (() => void) | undefined;
  readonly #abandoned: AbandonedCalls;
  #restartNeed: RestartNeed | undefined;
  #stopped: Promise<void> | undefined;

  /**
   * @throws InvariantViolationError `invariant-violation` when two handlers, two models or two event classes have the same name;
   * this includes event classes that the executor has already staged
   * @throws ConfigurationError `invalid-configuration` when an option or a setting is unknown, or a setting is out of range
   */
  constructor(options: DeliveryOptions) {
    const {
      databases,
      executor,
      handlers,
      settings,
      models = [],
      observer,
      clock = systemClock,
      // oxlint-disable-next-line no-restricted-properties -- the default of the port
      random = Math.random,
      onError = logError,
      onRecovered = logRecovery,
      onAttemptFailed = logAttemptFailure,
      onLeaseLost = logLeaseLoss,
      onRestartNeeded = logRestartNeed,
      ...unknown
    } = options;
    const unknownNames = Object.keys(unknown);
    if (unknownNames.length > 0) {
      throw new ConfigurationError(
        unknownNames.map((path) => ({ path, message: 'is not an option of Delivery' })),
      );
    }
    this.#settings = engineSettings(settings);
    this.#executor = executor;
    const registry = handlers instanceof EventHandlerRegistry ? handlers : new EventHandlerRegistry(handlers);
    executor.claimEventTypes?.(registry.eventClasses());
    const context = {
      settings: this.#settings,
      clock,
      random,
      onAttemptFailed: quiet(onAttemptFailed),
      observe: observeWith(observer),
      turn: new TurnTime(clock),
    };
    const tellRestart = quiet(onRestartNeeded);
    this.#abandoned = new AbandonedCalls({
      max: this.#settings.abandonedMax,
      forMs: this.#settings.abandonedForMs,
      clock,
      onRestartNeeded: (need) => {
        this.#restartNeed = need;
        tellRestart(need);
        void this.stop();
      },
    });
    const deliveries = databases.deliveries();
    const shared = {
      executor,
      handlers: registry,
      models,
      // Shows operators where it runs. A restarted process must have a new id, because it does not hold what the old one held.
      processId: `${hostname()}/${process.pid}/${randomUuid()}`,
      knownShards: deliveries.flatMap(({ shards }) => shards.map((shard) => shard.toString())),
      gate: new QuarantineGate(clock),
      abandoned: this.#abandoned,
      onRecovered: quiet(onRecovered),
      onLeaseLost: quiet(onLeaseLost),
    };
    this.#workers = deliveries.map((database) => {
      const reportError = quiet((error: unknown) => onError(error, database.shards));
      const worker = new DatabaseWorker({
        ...shared,
        database,
        context: { ...context, onError: reportError },
      });
      for (const shard of database.shards) this.#byShard.set(shard, worker);
      return worker;
    });
  }

  /** Why the process must be restarted, if it must; for its readiness check. */
  get restartNeed(): RestartNeed | undefined {
    return this.#restartNeed;
  }

  /**
   * Begins to deliver; calling it again does nothing. It does not wait for the databases: for each one, it tries until that
   * database is available. A new handler that starts `'now'` misses what is committed before {@link started} resolves; one that
   * starts at the `'beginning'` misses nothing.
   *
   * A process should end when {@link started} rejects: a database that refuses one handler because of conflicting names delivers
   * to none.
   *
   * @throws InvariantViolationError `invariant-violation` when it was stopped: create a new one
   */
  start(): void {
    if (this.#stopped !== undefined) {
      throw new InvariantViolationError('This delivery was stopped: create a new Delivery');
    }
    if (this.#ignoreCommits !== undefined) return;
    this.#ignoreCommits = this.#executor.onCommit((shard) => this.#byShard.get(shard)?.committed());
    // The work of delivery does not belong to the request that happens to start it.
    for (const worker of this.#workers) outsideRequests(() => worker.start());
  }

  /**
   * Resolves when every handler has its position in the log of every available database: what is committed there from then on is
   * delivered to a new handler that starts `'now'`.
   *
   * A database that is unavailable, or does not register a handler in time, is left out; that handler gets its events as soon as it
   * can: see {@link startedOn}. Other handlers do not wait for it.
   *
   * @returns the databases that deliver nothing to some handlers yet, with the reasons; empty when all handlers run
   * @throws HandlerNamesError `handler-names` when, in a database, the names of one handler belong to several handlers, or those
   * of two belong to one
   * @throws Error when a database was closed, or delivery stopped, before that
   */
  async started(): Promise<readonly StartFailure[]> {
    const settled = await Promise.all(this.#workers.map((worker) => worker.settled()));
    return settled.filter((failure) => failure !== undefined);
  }

  /**
   * Resolves when every handler has its position in the log of the database that holds a shard; rejects as {@link started} does.
   * It waits as long as that database is unavailable.
   *
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   */
  async startedOn(shard: ShardIdentifier): Promise<void> {
    const worker = this.#byShard.get(shard);
    if (worker === undefined) throw new UnknownShardError(shard);
    await worker.registered();
  }

  /**
   * Reads nothing more, finishes what was read, saves the cursors and gives the leases back; a second call waits for the first.
   *
   * If handlers do not finish in time, their signal is aborted, and their events are delivered again elsewhere.
   *
   * @param options.timeoutMs how long to wait for handlers, and then for the database. Default `stopTimeoutMs`.
   */
  stop({ timeoutMs = this.#settings.stopTimeoutMs }: { readonly timeoutMs?: number } = {}): Promise<void> {
    this.#ignoreCommits?.();
    this.#abandoned.stop();
    this.#stopped ??= Promise.all(this.#workers.map((worker) => worker.stop(timeoutMs))).then(
      () => undefined,
    );
    return this.#stopped;
  }
}

function logError(error: unknown, shards: readonly ShardIdentifier[]): void {
  const isRefused = FrameworkError.find(error)?.code === 'handler-names';
  const database = `the database of ${shards.join(', ')}`;
  const fate = isRefused
    ? `Nothing is delivered from ${database}, because it refuses a handler`
    : `Delivery from ${database} continues after an error`;
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(`${fate}: ${errorText(error)}`);
}

function logRecovery(shards: readonly ShardIdentifier[]): void {
  // oxlint-disable-next-line no-console -- it completes the report of the outage
  console.error(`Delivery has recovered: the database of ${shards.join(', ')} is available again`);
}

function logLeaseLoss({ shards, cause, slotsByHandler }: LeaseLoss): void {
  const slots = [...slotsByHandler].map(([handler, lost]) => `${handler} (${lost.join(', ')})`).join('; ');
  const why = cause === 'expired' ? 'were not renewed in time' : 'belong to another process now';
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(`Leases of the database of ${shards.join(', ')} ${why}, slots of ${slots}`);
}

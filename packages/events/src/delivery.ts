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
import { outsideRequests, randomUuid } from '@framework/core/adapter';
import { hostname } from 'node:os';

import { type AttemptFailureHook, errorText, logAttemptFailure } from './call/attempt-failure.js';
import { AbandonedCalls, type RestartHook, type RestartNeed, logRestartNeed } from './call/call-deadlines.js';
import { DatabaseWorker } from './database-worker.js';
import { type DeliveryOverrides, type EngineSettings, engineSettings } from './delivery-settings.js';
import { EventHandlerRegistry } from './handler/event-handler-registry.js';
import type { AnyEventHandler } from './handler/event-handler.js';
import { QuarantineGate } from './subscription/quarantine.js';
import { quiet } from './worker-context.js';

/** What a delivery needs. */
export interface DeliveryOptions {
  readonly databases: Pick<DatabaseRegistry, 'deliveries'>;
  /** Wakes the delivery at each commit, executes the actions of handlers, and stages no other class as theirs. */
  readonly executor: Pick<ActionExecutor, 'execute' | 'onCommit'> &
    Partial<Pick<ActionExecutor, 'claimEventTypes'>>;
  /** Processes that deliver the events of a database may have different ones: each works for those that it has. */
  readonly handlers: readonly AnyEventHandler[] | EventHandlerRegistry;
  /** What to change in the default settings. */
  readonly settings?: DeliveryOverrides;
  /** The classes that `event.model` gives; for others it gives an empty class of the same model name. */
  readonly models?: readonly ModelClass<unknown>[];
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Gives a number from 0 to 1, for jitter. Default: `Math.random`. */
  readonly random?: () => number;
  /**
   * Takes errors that no caller waits for, such as those of a database that is down, with the shards of the database: of one
   * outage, each text once. Default: standard error.
   */
  readonly onError?: (error: unknown, shards: readonly ShardIdentifier[]) => void;
  /** Takes, once at the end of such an outage, the shards of the database, which serves again. Default: standard error. */
  readonly onRecovered?: (shards: readonly ShardIdentifier[]) => void;
  /** Takes every call of a handler that did not succeed. Default: a line on standard error. */
  readonly onAttemptFailed?: AttemptFailureHook;
  /**
   * Takes, once, that this process has to be restarted, because calls of its handlers hang and nothing ends them: it stops
   * delivering by itself and gives its leases back, so that other processes go on. Default: a line on standard error.
   */
  readonly onRestartNeeded?: RestartHook;
}

const knownOptions: Readonly<Record<keyof DeliveryOptions, true>> = {
  databases: true,
  executor: true,
  handlers: true,
  settings: true,
  models: true,
  clock: true,
  random: true,
  onError: true,
  onRecovered: true,
  onAttemptFailed: true,
  onRestartNeeded: true,
};

/**
 * Delivers the events of all databases to handlers: at least once, those of one model in order.
 *
 * Any number of processes may deliver the same databases; they share the work by leases.
 *
 * ```ts
 * const delivery = new Delivery({ databases, executor, handlers: [new NotifyRecipientOnDeposit(mailer)] });
 * delivery.start();
 * …
 * await delivery.stop();
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
   * @throws InvariantViolationError `invariant-violation` when handlers or event classes have the same name, also one
   * that the executor has staged, or two of the models
   * @throws ConfigurationError `invalid-configuration` when an option or a setting is unknown, or a setting out of its bounds
   */
  constructor(options: DeliveryOptions) {
    // oxlint-disable-next-line no-restricted-properties -- the default of the port
    const { executor, models = [], clock = systemClock, random = Math.random } = options;
    const unknown = Object.keys(options).filter((name) => !Object.hasOwn(knownOptions, name));
    if (unknown.length > 0) {
      throw new ConfigurationError(unknown.map((path) => ({ path, message: 'is no option of a Delivery' })));
    }
    this.#settings = engineSettings(options.settings);
    this.#executor = executor;
    const handlers =
      options.handlers instanceof EventHandlerRegistry
        ? options.handlers
        : new EventHandlerRegistry(options.handlers);
    executor.claimEventTypes?.(handlers.eventClasses());
    const gate = new QuarantineGate(clock);
    // Operators see where it runs; a process that starts again there is another one, which has not what the last one held.
    const processId = `${hostname()}/${process.pid}/${randomUuid()}`;
    const context = {
      settings: this.#settings,
      clock,
      random,
      onAttemptFailed: quiet(options.onAttemptFailed ?? logAttemptFailure),
    };
    const { abandonedMax: max, abandonedForMs: forMs } = this.#settings;
    const tellRestart = quiet(options.onRestartNeeded ?? logRestartNeed);
    const onRestartNeeded = (need: RestartNeed): void => {
      this.#restartNeed = need;
      tellRestart(need);
      void this.stop();
    };
    const abandoned = new AbandonedCalls({ max, forMs, clock, onRestartNeeded });
    this.#abandoned = abandoned;
    const { onError = logError } = options;
    const onRecovered = quiet(options.onRecovered ?? logRecovery);
    const deliveries = options.databases.deliveries();
    const knownShards = deliveries.flatMap(({ shards }) => shards.map((shard) => shard.toString()));
    this.#workers = deliveries.map((database) => {
      const worker = new DatabaseWorker({
        database,
        context: { ...context, onError: quiet((error) => onError(error, database.shards)) },
        executor,
        handlers,
        models,
        processId,
        knownShards,
        gate,
        abandoned,
        onRecovered,
      });
      for (const shard of database.shards) this.#byShard.set(shard, worker);
      return worker;
    });
  }

  /** Why the process has to be restarted, once it has; for its readiness check. */
  get restartNeed(): RestartNeed | undefined {
    return this.#restartNeed;
  }

  /**
   * Begins, once; does not wait for the databases: one that is down is tried again until it is not. A process should end
   * when {@link started} rejects: no handler gets anything from a database that refuses one of them.
   *
   * @throws InvariantViolationError `invariant-violation` when it was stopped: make a new one
   */
  start(): void {
    if (this.#stopped !== undefined) {
      throw new InvariantViolationError(
        'This delivery was stopped and delivers nothing more: make a new Delivery',
      );
    }
    if (this.#ignoreCommits !== undefined) return;
    this.#ignoreCommits = this.#executor.onCommit((shard) => this.#byShard.get(shard)?.committed());
    // What it does, it does for nobody who happens to start it.
    for (const worker of this.#workers) outsideRequests(() => worker.start());
  }

  /**
   * Resolves when every handler has its place in the log of every database that can serve: what is committed there from
   * then on is delivered to a new handler that starts `'now'`.
   *
   * A database that says that it cannot serve now is left out; its delivery begins by itself when it can: see
   * {@link startedOn}.
   *
   * @throws HandlerNamesError `handler-names` when the names of one handler belong to several in a database, or those
   * of two to one
   * @throws Error when a database was closed, or delivery stopped, before
   */
  async started(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.settled()));
  }

  /**
   * Resolves when every handler has its place in the log of the database that holds a shard; throws as {@link started}.
   * It waits for as long as that database cannot serve.
   *
   * @throws UnknownShardError `unknown-shard` when the shard is not configured
   */
  async startedOn(shard: ShardIdentifier): Promise<void> {
    const worker = this.#byShard.get(shard);
    if (worker === undefined) throw new UnknownShardError(shard);
    await worker.registered();
  }

  /**
   * Reads nothing more, finishes what was read, saves how far it came and gives the leases back; a second call waits
   * for the first.
   *
   * Handlers that are not done in time have their signal aborted; their events are delivered again elsewhere.
   *
   * @param options.timeoutMs how long to wait for handlers, and once more for the database. Default `stopTimeoutMs`.
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
    ? `Nothing is delivered from ${database}, which refuses a handler`
    : `Delivery from ${database} goes on after an error`;
  // oxlint-disable-next-line no-console -- silence is never the default
  console.error(`${fate}: ${errorText(error)}`);
}

function logRecovery(shards: readonly ShardIdentifier[]): void {
  // oxlint-disable-next-line no-console -- it ends what was said of the outage
  console.error(`Delivery has recovered: the database of ${shards.join(', ')} serves again`);
}

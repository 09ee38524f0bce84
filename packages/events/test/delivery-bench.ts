import { type ActionClass, type Clock, type Principal, ShardIdentifier } from '@framework/core';
import type { DatabaseDelivery } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { MemoryAccess, MemoryDeliveryStore, MemoryDeliveryTables } from '@framework/testing/memory';
import {
  type AnyEventHandler,
  type AttemptFailure,
  Delivery,
  type DeliveryOptions,
  DeliveryOperator,
  type EventEnvelope,
  type EventHandler,
  type NamedHandlerOptions,
  FrameworkEventHandler,
  type HandlerContext,
  type LeaseLoss,
  type RestartNeed,
} from '../src/index.js';
import type { DeliveryOverrides } from '../src/delivery-settings.js';
import { type DeliveryTuning, tuned } from '../src/delivery-tuning.js';
import { DepositedEvent } from './account.js';

export const shard: ShardIdentifier = ShardIdentifier.of(0, 0);

/** Overrides of the settings by a test, including values that users cannot set. */
export type TestSettings = DeliveryOverrides & Partial<DeliveryTuning>;

type Work = (envelope: EventEnvelope<DepositedEvent>, context: HandlerContext) => Promise<void> | void;

/** A handler whose work a test writes in one line; `seen` contains the ids of the events it was called with. */
export function handlerOf(
  options: NamedHandlerOptions,
  work: Work = () => undefined,
): EventHandler<DepositedEvent> & { readonly seen: string[] } {
  class BenchHandler implements EventHandler<DepositedEvent> {
    readonly event = DepositedEvent;
    readonly seen: string[] = [];

    async handle(envelope: EventEnvelope<DepositedEvent>, context: HandlerContext): Promise<void> {
      this.seen.push(envelope.eventId);
      await work(envelope, context);
    }
  }
  FrameworkEventHandler({ startFrom: 'beginning', ...options })(BenchHandler);
  return new BenchHandler();
}

/** An executor that only records its calls. */
class RecordingExecutor {
  readonly executed: {
    readonly principal: Principal;
    readonly action: string;
    readonly configuration: unknown;
  }[] = [];
  readonly #listeners = new Set<(shard: ShardIdentifier) => void>();

  onCommit(listener: (shard: ShardIdentifier) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async execute<Params, Result>(
    principal: Principal,
    action: ActionClass<Params, Result>,
    _params: NoInfer<Params>,
    configuration?: unknown,
  ): Promise<Result> {
    this.executed.push({ principal, action: action.name, configuration });
    return undefined as Result;
  }

  committed(): void {
    for (const listener of this.#listeners) listener(shard);
  }
}

/** One process that delivers. */
export interface BenchProcess {
  readonly delivery: Delivery;
  readonly store: MemoryDeliveryStore;
  /** The access of the process to the database, which a test may end or make fail. */
  readonly access: MemoryAccess;
  readonly executor: RecordingExecutor;
  readonly errors: unknown[];
  /** The shards of each outage that has ended. */
  readonly recoveries: (readonly ShardIdentifier[])[];
  readonly failures: AttemptFailure[];
  readonly losses: LeaseLoss[];
  readonly restarts: RestartNeed[];
}

/** One database in memory, a clock that the test advances, and any number of processes. */
export class DeliveryBench {
  readonly clock = new VirtualClock();
  readonly database: MemoryDeliveryTables = new MemoryDeliveryTables(this.clock);

  /** What a process has before it delivers anything. */
  process(): Pick<BenchProcess, 'access' | 'store' | 'executor'> {
    const access = new MemoryAccess(this.database);
    return { access, store: new MemoryDeliveryStore(access), executor: new RecordingExecutor() };
  }

  /**
   * Starts a process with its own handlers.
   *
   * @param ready resolves when the database is ready. Default: at once
   * @param shards the shards that the process knows; the database has them all
   * @param clock the clock of the process. Default: that of the bench
   * @param own other options of the delivery
   */
  start(
    handlers: readonly AnyEventHandler[],
    settings: TestSettings = {},
    ready: DatabaseDelivery['ready'] = () => Promise.resolve(),
    shards: readonly ShardIdentifier[] = [shard],
    clock: Clock = this.clock,
    own: Pick<Partial<DeliveryOptions>, 'observer' | 'random'> = {},
  ): BenchProcess {
    const { access, store, executor } = this.process();
    const errors: unknown[] = [];
    const recoveries: (readonly ShardIdentifier[])[] = [];
    const failures: AttemptFailure[] = [];
    const losses: LeaseLoss[] = [];
    const restarts: RestartNeed[] = [];
    const delivery = new Delivery({
      databases: { deliveries: () => [{ store, shards, ready }] },
      executor,
      handlers,
      settings: tuned(settings),
      clock,
      random: () => 1,
      onError: (error) => errors.push(error),
      onRecovered: (recovered) => recoveries.push(recovered),
      onAttemptFailed: (failure) => failures.push(failure),
      onLeaseLost: (loss) => losses.push(loss),
      onRestartNeeded: (need) => restarts.push(need),
      ...own,
    });
    delivery.start();
    return { delivery, store, access, executor, errors, recoveries, failures, losses, restarts };
  }
}

/** An operator outside all processes, for the databases of these benches, in this order. */
export function operatorOf(...benches: readonly DeliveryBench[]): DeliveryOperator {
  const deliveries = benches.map(({ database }) => ({
    store: new MemoryDeliveryStore(new MemoryAccess(database)),
    shards: [shard],
    ready: async (): Promise<void> => undefined,
  }));
  return new DeliveryOperator({ deliveries: () => deliveries });
}

/** A promise that a test settles. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}

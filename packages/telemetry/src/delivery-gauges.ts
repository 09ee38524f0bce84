import type { DatabaseRegistry } from '@framework/core';
import {
  type DatabaseDelivery,
  type HandlerLag,
  type LeasedSlot,
  type RetainedLog,
  outsideRequests,
} from '@framework/core/adapter';
import {
  type Attributes,
  type BatchObservableCallback,
  type BatchObservableResult,
  type Meter,
  type Observable,
  ValueType,
} from '@opentelemetry/api';

import { type MeterProviders, metersOf } from './meters.js';
import { shardName } from './spans.js';

/** Whose delivery is observed, how often, and where the figures go. */
export interface DeliveryGaugesOptions {
  readonly databases: Pick<DatabaseRegistry, 'deliveries'>;
  /** Default: that of the SDK that is registered with `@opentelemetry/api`; without one, nothing is observed and no database asked. */
  readonly meterProvider?: MeterProviders;
  /**
   * A database is asked at most once in this time, in milliseconds, however often the figures are collected; in between, its last
   * answer is shown. Default 5,000.
   */
  readonly intervalMs?: number;
  /** After this time, in milliseconds, the figures are collected without those of a database that has not answered. Default 2,000. */
  readonly timeoutMs?: number;
}

/**
 * Shows how far each consumer, which is a handler or a relay, is behind in each database, what is blocked for it, how many of
 * its slots are leased, and how much write-ahead log the server keeps for each replication slot. The databases are asked only when the figures are collected.
 *
 * The figures of a database that does not answer are absent, and `framework.database.up` is 0 for it.
 *
 * @returns a function that ends it; call it before the databases are closed
 * @throws InvariantViolationError `invariant-violation` when a database has no delivery store
 */
export function observeDelivery({
  databases,
  meterProvider,
  intervalMs = 5_000,
  timeoutMs = 2_000,
}: DeliveryGaugesOptions): () => void {
  const inquiries = databases
    .deliveries()
    .map((delivery) => new Inquiry(delivery, { intervalMs, timeoutMs }));
  const ends = metersOf(meterProvider).map((meter) => {
    const gauges = gaugesOf(meter);
    const observe: BatchObservableCallback = async (result) => {
      await Promise.all(
        inquiries.map(async (inquiry) => {
          const answer = await inquiry.answer();
          const shard = { 'framework.shard': inquiry.shards };
          result.observe(gauges.up, answer === undefined ? 0 : 1, shard);
          if (answer !== undefined) show(result, gauges, answer, shard);
        }),
      );
    };
    const all = Object.values(gauges);
    meter.addBatchObservableCallback(observe, all);
    return () => meter.removeBatchObservableCallback(observe, all);
  });
  return () => ends.forEach((end) => end());
}

/** What a database says about its delivery. */
interface Answer {
  readonly lags: readonly HandlerLag[];
  readonly slots: readonly LeasedSlot[];
  readonly retained: readonly RetainedLog[];
}

/** Asks one database, for all who want to know at about the same time. */
class Inquiry {
  /** The shards of the database, such as `0,0 0,1`. */
  readonly shards: string;
  readonly #delivery: DatabaseDelivery;
  readonly #limits: { readonly intervalMs: number; readonly timeoutMs: number };
  #askedMs = -Infinity;
  #isRunning = false;
  #answer: Promise<Answer | undefined> = Promise.resolve(undefined);

  constructor(
    delivery: DatabaseDelivery,
    limits: { readonly intervalMs: number; readonly timeoutMs: number },
  ) {
    this.#delivery = delivery;
    this.#limits = limits;
    this.shards = delivery.shards.map(shardName).join(' ');
  }

  /** The last answer, or a new one if that is too old; `undefined` when the database has not answered in time. */
  async answer(): Promise<Answer | undefined> {
    const nowMs = performance.now();
    // Never two questions at a time: a database that hangs gets no more of them.
    if (!this.#isRunning && nowMs - this.#askedMs >= this.#limits.intervalMs) {
      this.#askedMs = nowMs;
      this.#isRunning = true;
      this.#answer = outsideRequests(() => this.#ask()).finally(() => (this.#isRunning = false));
    }
    return this.#isRunning
      ? within(this.#answer, Math.max(0, this.#askedMs + this.#limits.timeoutMs - nowMs))
      : this.#answer;
  }

  async #ask(): Promise<Answer | undefined> {
    const { store } = this.#delivery;
    try {
      const [lags, slots, retained = []] = await Promise.all([
        store.cursors.lag(),
        store.leases.list(),
        store.retainedLogs?.(),
      ]);
      return { lags, slots, retained };
    } catch {
      return undefined;
    }
  }
}

/** What the promise resolves to, or `undefined` if that takes longer. */
async function within<T>(promise: Promise<T>, limitMs: number): Promise<T | undefined> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(late.resolve, limitMs, undefined);
  return Promise.race([promise, late.promise]).finally(() => clearTimeout(timer));
}

type Gauges = Readonly<
  Record<'up' | 'pending' | 'lag' | 'blocked' | 'deadLetters' | 'paused' | 'leases' | 'retained', Observable>
>;

function gaugesOf(meter: Meter): Gauges {
  const gauge = (name: string, unit: string, description: string, valueType = ValueType.INT): Observable =>
    meter.createObservableGauge(`framework.${name}`, { unit, description, valueType });
  return {
    up: gauge('database.up', '1', 'Whether a database has answered: 1 or 0'),
    pending: gauge('delivery.pending', '{event}', 'Committed events that a consumer has not reached'),
    lag: gauge('delivery.lag', 's', 'The age of the oldest of them', ValueType.DOUBLE),
    blocked: gauge('delivery.blocked', '{event}', 'Events that wait for a retry or an operator'),
    deadLetters: gauge('delivery.dead_letters', '{event}', 'Those of them that are not retried any more'),
    paused: gauge('delivery.paused', '1', 'Whether a consumer is paused: 1 or 0'),
    leases: gauge(
      'delivery.leases',
      '{lease}',
      'Slots that a process holds, that have expired, or that are free',
    ),
    retained: gauge(
      'replication.retained',
      'By',
      'Write-ahead log that the server keeps for a replication slot, whether or not it is used',
    ),
  };
}

function show(
  result: BatchObservableResult,
  gauges: Gauges,
  { lags, slots, retained }: Answer,
  shard: Attributes,
): void {
  const of = (handler: string): Attributes => ({ ...shard, 'messaging.consumer.group.name': handler });
  for (const { handler, paused, pendingCount, oldestPendingMs, blockedCount, deadCount } of lags) {
    const consumer = of(handler);
    result.observe(gauges.pending, pendingCount, consumer);
    result.observe(gauges.lag, oldestPendingMs / 1_000, consumer);
    result.observe(gauges.blocked, blockedCount, consumer);
    result.observe(gauges.deadLetters, deadCount, consumer);
    result.observe(gauges.paused, paused ? 1 : 0, consumer);
  }
  for (const [handler, own] of Map.groupBy(slots, (slot) => slot.handler)) {
    const states = Map.groupBy(own, stateOf);
    for (const state of ['held', 'expired', 'free'] as const)
      result.observe(gauges.leases, states.get(state)?.length ?? 0, {
        ...of(handler),
        'framework.lease.state': state,
      });
  }
  for (const { name, retainedBytes } of retained)
    result.observe(gauges.retained, retainedBytes, { ...shard, 'framework.replication.slot': name });
}

/** Whether a slot is held; a process that has died holds it until another one takes it. */
function stateOf({ processId, untilDate }: LeasedSlot): 'held' | 'expired' | 'free' {
  if (processId === undefined) return 'free';
  return untilDate !== undefined && untilDate.getTime() < Date.now() ? 'expired' : 'held';
}

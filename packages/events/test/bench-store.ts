import type { DeliverableEvent } from '@framework/core/adapter';
import { type MemoryBlocked, type StoreMethod, modelKey } from '@framework/testing/memory';

import {
  type BatchEventHandler,
  type EventEnvelope,
  FrameworkEventHandler,
  type HandlerContext,
  type NamedHandlerOptions,
} from '../src/index.js';
import { DepositedEvent } from './account.js';
import type { BenchProcess, DeliveryBench } from './delivery-bench.js';

/** How a model is blocked that is due; `openCount` processes ended during attempts at its head. */
export type BlockedState = Partial<Omit<MemoryBlocked, 'openAttempts'>> & { readonly openCount?: number };

/** Blocks a model that is due at an event that has failed, as another process would have done. */
export function blockElsewhere(
  { database }: Pick<DeliveryBench, 'database'>,
  handler: string,
  event: DeliverableEvent,
  { openCount = 0, ...own }: BlockedState = {},
): MemoryBlocked {
  const { slot, modelName, modelId, modelVersion, ordinal } = event;
  const row: MemoryBlocked = {
    handler,
    slot,
    modelName,
    modelId,
    position: { modelVersion, ordinal },
    event,
    attempts: 1,
    uncounted: 0,
    openAttempts: new Set(Array.from({ length: openCount }, (_item, index) => `attempt ${index}`)),
    loneAttempts: new Set(),
    error: 'no',
    nextMs: 0,
    dead: false,
    doneIds: [],
    blockedMs: 0,
    serial: database.blocked.size,
    ...own,
  };
  database.blocked.set(modelKey(handler, event), row);
  return row;
}

/** How many attempts at the head of a blocked model count, and how many are open. */
export function countsOf({ attempts, loneAttempts, openAttempts }: MemoryBlocked): readonly [number, number] {
  return [attempts + loneAttempts.size, openAttempts.size];
}

/** Gives a slot to another process, which is alive and does nothing. */
export function giveAway({ database }: DeliveryBench, handler: string, slot: number): void {
  database.hand({ handler, slot }, 'another process', false);
  database.processes.set('another process', {
    handlers: [handler],
    shards: [],
    untilMs: Number.MAX_SAFE_INTEGER,
    timeline: database.timeline,
    leaseMs: 1_000,
  });
}

/** Ends a process, and lets the database notice that at once: each of its slots may hold the cause. */
export function die({ database }: DeliveryBench, { access }: BenchProcess): void {
  access.kill();
  database.processes.clear();
  database.abandonAll();
}

/** Records, from now on, when a process sends which statements. */
export function sentBy(
  { clock }: DeliveryBench,
  { access }: Pick<BenchProcess, 'access'>,
): (method: StoreMethod) => readonly number[] {
  const sent = new Map<StoreMethod, number[]>();
  const answer = access.answer.bind(access);
  access.answer = (method, work) => {
    sent.set(method, [...(sent.get(method) ?? []), clock.elapsedMs()]);
    return answer(method, work);
  };
  return (method) => sent.get(method) ?? [];
}

export function down(count: number): Error[] {
  return Array.from({ length: count }, () => new Error('down'));
}

/** A batch handler whose work a test writes in one line; `batches` contains the ids of the events of each call. */
export function batchHandlerOf(
  options: NamedHandlerOptions,
  work: (ids: readonly string[], context: HandlerContext) => Promise<void> | void = () => undefined,
): BatchEventHandler<DepositedEvent> & { readonly batches: (readonly string[])[] } {
  class BenchBatchHandler implements BatchEventHandler<DepositedEvent> {
    readonly event = DepositedEvent;
    readonly batches: (readonly string[])[] = [];

    async handleBatch(
      envelopes: readonly EventEnvelope<DepositedEvent>[],
      context: HandlerContext,
    ): Promise<void> {
      const ids = envelopes.map(({ eventId }) => eventId);
      this.batches.push(ids);
      await work(ids, context);
    }
  }
  FrameworkEventHandler({ startFrom: 'beginning', ...options })(BenchBatchHandler);
  return new BenchBatchHandler();
}

import type { BlockedHead, BlockedModel, DeliverableEvent } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';

import { AbandonedCalls } from '../src/call/call-deadlines.js';
import { EventHandlerRegistry } from '../src/handler/event-handler-registry.js';
import { EnvelopeFactory } from '../src/handler/row-envelope.js';
import { type AnyEventHandler, type NamedHandlerOptions, FrameworkEventHandler } from '../src/index.js';
import type { HeldSlot } from '../src/slots/held-slot.js';
import { type SubscriptionDependencies, EventDispatch } from '../src/subscription/event-dispatch.js';
import { BlockedModelSet } from '../src/subscription/keyed-queue.js';
import { DepositedEvent } from './account.js';
import { shard } from './delivery-bench.js';
import { type TestSettings, testSettings, workerContext } from './worker-context.js';

interface Called {
  readonly eventId: string;
}

/** The dispatch of one handler, whose calls last until a test ends them. */
export class Dispatching {
  readonly clock = new VirtualClock();
  readonly stopping = new AbortController();
  readonly ended = new AbortController();
  readonly abandoned = new AbandonedCalls({
    max: 2,
    forMs: 1_000_000,
    clock: this.clock,
    onRestartNeeded: () => undefined,
  });
  /** The ids of the events of each call. */
  readonly calls: string[] = [];
  readonly finished: string[] = [];
  readonly errors: unknown[] = [];
  /** What the database was told about retries, and asked about models. */
  readonly asked: string[] = [];
  readonly blocked = new BlockedModelSet();
  readonly dispatch: EventDispatch;
  roomCount = 0;
  isStillBlocked = (_model: BlockedModel): boolean | Promise<boolean> => false;
  /** Delays the loading of large events. */
  loaded: Promise<void> = Promise.resolve();
  readonly #ends = new Map<string, (error?: Error) => void>();

  constructor(options: Partial<NamedHandlerOptions> = {}, settings: TestSettings = {}) {
    const handler = this.#handler({ name: 'one', ...options });
    const [registered] = new EventHandlerRegistry([handler]).handlers;
    const around: Partial<Record<keyof SubscriptionDependencies, unknown>> = {
      context: workerContext({
        clock: this.clock,
        settings: testSettings(settings),
        stopping: this.stopping.signal,
        ended: this.ended.signal,
        onError: (error) => this.errors.push(error),
      }),
      envelopes: new EnvelopeFactory([shard], []),
      abandoned: this.abandoned,
      blockedEvents: {
        beginAttempt: async ({ event }: BlockedHead) => this.asked.push(`begin ${event.id}`) > 0,
        endAttempt: async ({ event }: BlockedHead) => this.asked.push(`end ${event.id}`) > 0,
        giveBackAttempt: async ({ event }: BlockedHead) => void this.asked.push(`give back ${event.id}`),
      },
      blocker: {
        block: async (_slot: HeldSlot, events: readonly { readonly event: DeliverableEvent }[]) =>
          this.asked.push(...events.map(({ event }) => `block ${event.id}`)) > 0,
      },
      check: {
        isBlocked: async (model: BlockedModel) => {
          this.asked.push(`check ${model.modelId}`);
          return this.isStillBlocked(model);
        },
      },
      log: {
        load: async (_handler: string, events: readonly DeliverableEvent[]) => {
          await this.loaded;
          return events;
        },
      },
      watch: { now: () => 0, stoodSince: () => false },
      onBlocked: () => undefined,
    };
    this.dispatch = new EventDispatch({
      handler: { ...registered!, id: 'one' },
      around: around as unknown as SubscriptionDependencies,
      blocked: this.blocked,
      onRoom: () => this.roomCount++,
    });
  }

  handle(slot: HeldSlot, ...events: readonly DeliverableEvent[]): void {
    for (const event of events)
      this.dispatch.handle([event], slot, { onFinished: () => this.finished.push(event.id), more: false });
  }

  /** Requests retries; returns the ids of those that have ended. */
  retry(slot: HeldSlot, ...events: readonly DeliverableEvent[]): readonly string[] {
    const over: string[] = [];
    for (const event of events) {
      const head = { handler: 'one', event, attempts: 1, openCount: 0, uncounted: 0, suspect: false };
      void this.dispatch.retry({ ...head, token: slot.token }, slot).then(() => over.push(event.id));
    }
    return over;
  }

  /** Ends the calls with these events, with an error if one is given. */
  async end(calls: readonly string[], error?: Error): Promise<void> {
    await this.settled();
    for (const call of calls) this.#ends.get(call)!(error);
    await this.settled();
  }

  /** Lets everything continue that has nothing left to wait for. */
  settled(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve));
  }

  async isIdle(): Promise<boolean> {
    let isIdle = false;
    void this.dispatch.idle().then(() => (isIdle = true));
    await this.settled();
    return isIdle;
  }

  #handler(options: NamedHandlerOptions): AnyEventHandler {
    const call = async (called: readonly Called[]): Promise<void> => {
      const ids = called.map(({ eventId }) => eventId).join();
      this.calls.push(ids);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      this.#ends.set(ids, (error) => (error === undefined ? resolve() : reject(error)));
      await promise;
    };
    class Single {
      readonly event = DepositedEvent;
      handle(envelope: Called): Promise<void> {
        return call([envelope]);
      }
    }
    class Batches {
      readonly event = DepositedEvent;
      handleBatch(envelopes: readonly Called[]): Promise<void> {
        return call(envelopes);
      }
    }
    const isBatch = options.batchMax !== undefined;
    const handler = isBatch ? Batches : Single;
    FrameworkEventHandler(options)(handler);
    return new handler();
  }
}

import type { AnyEventHandler, EventEnvelope, EventHandlerRegistry, HandlerContext } from '@framework/events';
import { SpecificationError } from '../specification-error.js';

/** One attempt of a handler at an event. */
export interface HandlerAttempt {
  readonly handler: string;
  readonly eventId: string;
  readonly eventType: string;
  /** What it threw; `undefined` when it returned. */
  readonly error: unknown;
}

/** Stands between delivery and handlers: remembers every attempt, and ends what would go on for ever. */
export class HandlerWatch {
  /** In the order in which they ended. */
  readonly attempts: HandlerAttempt[] = [];
  /** The handlers with the watch around them, for a delivery. */
  readonly handlers: readonly AnyEventHandler[];
  readonly #callsMax: number;
  readonly #callCounts = new Map<string, number>();
  readonly #running = new Set<HandlerContext>();

  /** @param callsMax after how many calls the handlers count as restless */
  constructor(handlers: EventHandlerRegistry, callsMax: number) {
    this.#callsMax = callsMax;
    this.handlers = handlers.handlers.map(({ name, handler }) => this.#watched(name, handler));
  }

  /** How many calls were made. */
  get callCount(): number {
    return [...this.#callCounts.values()].reduce((sum, count) => sum + count, 0);
  }

  /** How many calls run now that were not given up. */
  get runningCount(): number {
    return [...this.#running].filter(({ signal }) => !signal.aborted).length;
  }

  /** @throws SpecificationError `restless` when more calls were made than there may be */
  assertRestful(): void {
    if (this.callCount <= this.#callsMax) return;
    const counts = [...this.#callCounts]
      .sort(([, one], [, other]) => other - one)
      .map(([name, count]) => `${name} (${count})`);
    throw new SpecificationError(
      'restless',
      `Delivery does not come to rest: more than ${this.#callsMax} calls of handlers, by ${counts.join(', ')}. ` +
        'Look for events that lead to each other, or raise callsMax',
    );
  }

  /** Has the class of the handler, by which it is registered, and everything else of it. */
  #watched(name: string, handler: AnyEventHandler): AnyEventHandler {
    if ('handleBatch' in handler) {
      return Object.create(handler, {
        handleBatch: {
          value: (envelopes: readonly EventEnvelope<never>[], context: HandlerContext) =>
            this.#call(name, envelopes, context, () => handler.handleBatch(envelopes, context)),
        },
      }) as AnyEventHandler;
    }
    return Object.create(handler, {
      handle: {
        value: (envelope: EventEnvelope<never>, context: HandlerContext) =>
          this.#call(name, [envelope], context, () => handler.handle(envelope, context)),
      },
    }) as AnyEventHandler;
  }

  async #call(
    name: string,
    envelopes: readonly EventEnvelope<never>[],
    context: HandlerContext,
    work: () => Promise<void>,
  ): Promise<void> {
    this.#callCounts.set(name, (this.#callCounts.get(name) ?? 0) + 1);
    // What fails is parked, so that the delivery comes to an end.
    this.assertRestful();
    this.#running.add(context);
    try {
      await work();
      this.#ended(name, envelopes, undefined);
    } catch (error) {
      this.#ended(name, envelopes, error);
      throw error;
    } finally {
      this.#running.delete(context);
    }
  }

  #ended(handler: string, envelopes: readonly EventEnvelope<never>[], error: unknown): void {
    for (const { eventId, eventType } of envelopes)
      this.attempts.push({ handler, eventId, eventType, error });
  }
}

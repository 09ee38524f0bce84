import type { AnyEventHandler, EventEnvelope, EventHandlerRegistry, HandlerContext } from '@framework/events';
import { type HandlerCall, handlersAround } from '../../deliveries/handlers-around.js';
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
    this.handlers = handlersAround(handlers, (call) => this.#call(call));
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

  async #call({ handler: { name }, envelopes, context, work }: HandlerCall): Promise<void> {
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

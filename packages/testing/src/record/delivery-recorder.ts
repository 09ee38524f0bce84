import { type AnyEventHandler, EventHandlerRegistry, type RegisteredHandler } from '@framework/events';
import { type DeliveryRecord, deliveryRecords } from '../deliveries/delivery-record.js';
import { handlersAround } from '../deliveries/handlers-around.js';

/**
 * Records what handlers are called with, for {@link checkRecord}: give a delivery the handlers of {@link DeliveryRecorder.around} in the
 * place of your own. Everything that delivers has to run in the process of the test, and to share a recorder.
 *
 * ```ts
 * const recorder = new DeliveryRecorder();
 * const delivery = new Delivery({ …, handlers: recorder.around([new CountLoans()]) });
 * ```
 */
export class DeliveryRecorder {
  /** In the order in which they began. */
  readonly records: DeliveryRecord[] = [];
  readonly #handlers = new Map<string, RegisteredHandler>();
  #place = 0;

  /** The handlers that are recorded. */
  get handlers(): readonly RegisteredHandler[] {
    return [...this.#handlers.values()];
  }

  /** Handlers that do what these do, and are recorded. */
  around(handlers: readonly AnyEventHandler[]): readonly AnyEventHandler[] {
    const registry = new EventHandlerRegistry(handlers);
    for (const registered of registry.handlers) this.#handlers.set(registered.name, registered);
    return handlersAround(registry, async ({ handler, envelopes, work }) => {
      const records = deliveryRecords(handler.name, envelopes, this.#place++);
      this.records.push(...records);
      await work();
      const done = this.#place++;
      for (const record of records) record.done = done;
    });
  }
}

import {
  type AnyEventHandler,
  type EventEnvelope,
  EventHandlerRegistry,
  type HandlerContext,
  type RegisteredHandler,
} from '@framework/events';

/** One call of a handler with one event. */
export interface DeliveryRecord {
  readonly handler: string;
  readonly eventId: string;
  /** The position of the call's start among all starts and ends; the events of a batch share it. */
  readonly begun: number;
  /** The position of the call's successful end; `undefined` until then. */
  done: number | undefined;
  /** Everything about the event, as the handler received it, that must be identical in each delivery. */
  readonly text: string;
}

/** Makes the records of a call as it starts. */
export function deliveryRecords(
  handler: string,
  envelopes: readonly EventEnvelope<never>[],
  begun: number,
): readonly DeliveryRecord[] {
  return envelopes.map((envelope) => ({
    handler,
    eventId: envelope.eventId,
    begun,
    done: undefined,
    text: textOf(envelope),
  }));
}

function textOf(envelope: EventEnvelope<never>): string {
  const { eventId, eventType, payload, namespace, modelId, modelName, modelVersion, ordinal } = envelope;
  const { actionId, actionName, actionParams, principal, headers, startedDate, createdDate } = envelope;
  return JSON.stringify([
    [eventId, eventType, payload, namespace, modelId, modelName, modelVersion, ordinal],
    [actionId, actionName, actionParams, principal, headers, startedDate, createdDate],
  ]);
}

/**
 * Records the calls of handlers for {@link checkRecord}. Pass the handlers of {@link DeliveryRecorder.around} to a
 * delivery instead of your own. Everything that delivers must run in the process of the test and share one recorder.
 *
 * ```ts
 * const recorder = new DeliveryRecorder();
 * const delivery = new Delivery({ …, handlers: recorder.around([new CountLoans()]) });
 * ```
 */
export class DeliveryRecorder {
  /** The records of all calls, in the order in which the calls started. */
  readonly records: DeliveryRecord[] = [];
  readonly #handlers = new Map<string, RegisteredHandler>();
  #place = 0;

  /** The recorded handlers. */
  get handlers(): readonly RegisteredHandler[] {
    return [...this.#handlers.values()];
  }

  /** Returns handlers that do the same as these, and whose calls are recorded. */
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

/** One call of a handler with one or more events. */
export interface HandlerCall {
  readonly handler: RegisteredHandler;
  readonly envelopes: readonly EventEnvelope<never>[];
  readonly context: HandlerContext;
  /** Runs the handler. By default it receives the context of the call. */
  readonly work: (context?: HandlerContext) => Promise<void>;
}

/**
 * Wraps handlers with a function around each call.
 *
 * The results keep the handlers' classes, by which they are registered, and all their other properties.
 */
export function handlersAround(
  handlers: readonly AnyEventHandler[] | EventHandlerRegistry,
  around: (call: HandlerCall) => Promise<void>,
): readonly AnyEventHandler[] {
  const registry = handlers instanceof EventHandlerRegistry ? handlers : new EventHandlerRegistry(handlers);
  return registry.handlers.map((registered) => {
    const { handler } = registered;
    if ('handleBatch' in handler) {
      const handleBatch = (envelopes: readonly EventEnvelope<never>[], context: HandlerContext) =>
        around({
          handler: registered,
          envelopes,
          context,
          work: (own = context) => handler.handleBatch(envelopes, own),
        });
      return Object.create(handler, { handleBatch: { value: handleBatch } }) as AnyEventHandler;
    }
    const handle = (envelope: EventEnvelope<never>, context: HandlerContext) =>
      around({
        handler: registered,
        envelopes: [envelope],
        context,
        work: (own = context) => handler.handle(envelope, own),
      });
    return Object.create(handler, { handle: { value: handle } }) as AnyEventHandler;
  });
}

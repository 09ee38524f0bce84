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
  /** Of this call among all that was recorded: begins and ends are in this order, and those of one batch begin together. */
  readonly begun: number;
  /** `undefined` while it has not succeeded. */
  done: number | undefined;
  /** Everything of the event, as the handler received it, that must be the same at each delivery. */
  readonly text: string;
}

/** The records of a call that begins. */
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

/** One call of a handler, with one event or with several. */
export interface HandlerCall {
  readonly handler: RegisteredHandler;
  readonly envelopes: readonly EventEnvelope<never>[];
  readonly context: HandlerContext;
  /** What the handler does. Default of its argument: the context of the call. */
  readonly work: (context?: HandlerContext) => Promise<void>;
}

/**
 * Handlers that do what these do, with something around each call.
 *
 * They have the classes of the handlers, by which they are registered, and everything else of them.
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

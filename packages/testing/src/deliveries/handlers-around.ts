import {
  type AnyEventHandler,
  type EventEnvelope,
  EventHandlerRegistry,
  type HandlerContext,
  type RegisteredHandler,
} from '@framework/events';

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

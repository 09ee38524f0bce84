import type { AnyEventHandler } from './event-handler.js';
import type { EventHandlerOptions } from './handler-options.js';

/** The class of a handler, as a value. */
export type EventHandlerClass = abstract new (...args: never[]) => AnyEventHandler;

const declared = new Map<unknown, EventHandlerOptions>();

/**
 * Marks a handler for discovery, and declares its durable name and how it is delivered to.
 *
 * Works as a standard decorator, as a legacy one, and as a call: `FrameworkEventHandler({ name })(NotifyHandler)`.
 */
export function FrameworkEventHandler(options: EventHandlerOptions): (handler: EventHandlerClass) => void {
  return (handler) => {
    declared.set(handler, options);
  };
}

/** What a class declared of itself, or `undefined` when it is not marked. */
export function declaredHandlerOptions(handler: unknown): EventHandlerOptions | undefined {
  return declared.get(handler);
}

/** Every class that was marked and imported so far. */
export function discoveredHandlers(): readonly EventHandlerClass[] {
  return [...declared.keys()] as EventHandlerClass[];
}

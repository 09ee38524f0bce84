import { type ActionClass, actionNameOf } from '@framework/core';
import {
  type AnyEventHandler,
  type EventEnvelope,
  EventHandlerRegistry,
  type HandlerContext,
  type HandlerExecution,
} from '@framework/events';
import { type HandlerCallRecord, type History, effectHeader } from './history.js';

/** The handlers of a process with a watch around them, which records every call and every effect. */
export function watchedHandlers(
  handlers: readonly AnyEventHandler[],
  history: History,
  isAlive: () => boolean,
): readonly AnyEventHandler[] {
  return new EventHandlerRegistry(handlers).handlers.map(({ name, handler }) => {
    const call = (
      envelopes: readonly EventEnvelope<never>[],
      context: HandlerContext,
      work: (watched: HandlerContext) => Promise<void>,
    ): Promise<void> => watchedCall({ name, history, isAlive, envelopes, context, work });
    // Has the class of the handler, by which it is registered, and everything else of it.
    if ('handleBatch' in handler) {
      const handleBatch = (envelopes: readonly EventEnvelope<never>[], context: HandlerContext) =>
        call(envelopes, context, (watched) => handler.handleBatch(envelopes, watched));
      return Object.create(handler, { handleBatch: { value: handleBatch } }) as AnyEventHandler;
    }
    const handle = (envelope: EventEnvelope<never>, context: HandlerContext) =>
      call([envelope], context, (watched) => handler.handle(envelope, watched));
    return Object.create(handler, { handle: { value: handle } }) as AnyEventHandler;
  });
}

async function watchedCall({
  name,
  history,
  isAlive,
  envelopes,
  context,
  work,
}: {
  readonly name: string;
  readonly history: History;
  readonly isAlive: () => boolean;
  readonly envelopes: readonly EventEnvelope<never>[];
  readonly context: HandlerContext;
  readonly work: (watched: HandlerContext) => Promise<void>;
}): Promise<void> {
  // What is left of a process after its death does nothing any more.
  if (!isAlive()) return new Promise(() => undefined);
  const begun = history.nextPlace();
  const records = envelopes.map((envelope): HandlerCallRecord => ({
    handler: name,
    eventId: envelope.eventId,
    begun,
    done: undefined,
    text: textOf(envelope),
  }));
  history.handlerCalls.push(...records);
  const [first] = envelopes;
  await work(watchedContext(context, name, first?.eventId ?? '', history));
  if (!isAlive()) return new Promise(() => undefined);
  const done = history.nextPlace();
  for (const record of records) record.done = done;
}

/** Marks what the handler's actions commit, and records those that were ok. */
function watchedContext(
  context: HandlerContext,
  handler: string,
  eventId: string,
  history: History,
): HandlerContext {
  return {
    attempt: context.attempt,
    get signal() {
      return context.signal;
    },
    execute: async <Params, Result>(
      action: ActionClass<Params, Result>,
      params: NoInfer<Params>,
      configuration: HandlerExecution = {},
    ): Promise<Result> => {
      const effect = [handler, eventId, actionNameOf(action), configuration.key ?? ''].join(' ');
      const headers = { ...configuration.headers, [effectHeader]: effect };
      const result = await context.execute(action, params, { ...configuration, headers });
      history.effects.push({ handler, eventId, effect });
      return result;
    },
  };
}

/** Everything of an event that must be the same at each delivery. */
function textOf(envelope: EventEnvelope<never>): string {
  const { eventId, eventType, payload, namespace, modelId, modelName, modelVersion, ordinal } = envelope;
  const { actionId, actionName, actionParams, principal, headers, startedDate, createdDate } = envelope;
  return JSON.stringify([
    [eventId, eventType, payload, namespace, modelId, modelName, modelVersion, ordinal],
    [actionId, actionName, actionParams, principal, headers, startedDate, createdDate],
  ]);
}

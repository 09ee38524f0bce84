import type { DeliverableEvent } from '@framework/core';
import type { RegisteredHandler } from '@framework/events';
import type { MemoryTables } from '../../memory/index.js';
import type { HandlerCallRecord, History } from '../history.js';

/**
 * Every event reaches every handler that wants it, nothing else does, repeats are the same, and no event of a model is delivered
 * before the one before it is handled.
 *
 * What a version of a handler does not want, it may pass over: of such events only those that were parked have to be handled.
 *
 * @param isWanted whether every version of a handler that has run wants the events of a type
 */
export function checkDeliveries(
  history: History,
  databases: readonly MemoryTables[],
  handlers: readonly RegisteredHandler[],
  isWanted: (handler: string, type: string) => boolean,
): readonly string[] {
  const lost = new Set(history.lost.flatMap(({ events }) => events.map(({ id }) => id)));
  const callsBy = Map.groupBy(history.handlerCalls, ({ handler, eventId }) => `${handler} ${eventId}`);
  const logged = databases.flatMap(({ delivery }) => delivery.log);
  return [
    ...notCommitted(history.handlerCalls, new Set([...lost, ...logged.map(({ id }) => id)])),
    ...differing(callsBy),
    ...handlers.flatMap((handler) =>
      databases.flatMap((tables) =>
        faultsOf(handler, tables, isWanted, (event) => callsBy.get(`${handler.name} ${event.id}`)),
      ),
    ),
  ];
}

function notCommitted(
  calls: readonly HandlerCallRecord[],
  committed: ReadonlySet<string>,
): readonly string[] {
  return calls
    .filter(({ eventId }) => !committed.has(eventId))
    .map(({ handler, eventId }) => `${handler} received ${eventId}, which was never committed`);
}

function differing(callsBy: ReadonlyMap<string, readonly HandlerCallRecord[]>): readonly string[] {
  return [...callsBy].flatMap(([what, calls]) =>
    new Set(calls.map(({ text }) => text)).size > 1 ? [`${what}: repeats are not the same`] : [],
  );
}

function faultsOf(
  { name, eventClasses, options }: RegisteredHandler,
  { delivery }: MemoryTables,
  isWanted: (handler: string, type: string) => boolean,
  callsOf: (event: DeliverableEvent) => readonly HandlerCallRecord[] | undefined,
): readonly string[] {
  const faults: string[] = [];
  const isComplete = options.startFrom === 'beginning';
  const id = delivery.names.get(name) ?? name;
  const wanted = delivery.log.filter(({ type }) => eventClasses?.has(type) ?? true);
  const byModel = Map.groupBy(wanted, ({ modelName, modelId }) => `${modelName} ${modelId}`);
  for (const [model, events] of byModel) {
    let before: { readonly event: DeliverableEvent; readonly done: number } | undefined;
    for (const event of events.toSorted(byVersion)) {
      const what = `${name}: ${event.type} of version ${event.modelVersion} of ${model}`;
      const calls = callsOf(event) ?? [];
      const begun = Math.min(...calls.map((call) => call.begun));
      const done = Math.min(...calls.map((call) => call.done ?? Infinity));
      const isParked = delivery.parked.has(`${id} ${event.id}`);
      if (!isWanted(name, event.type)) {
        const wasParked = delivery.parkedEver.has(`${id} ${event.id}`);
        if (wasParked && done === Infinity && !isParked) faults.push(`${what} was parked and thrown away`);
        continue;
      }
      if (isComplete && done === Infinity && !isParked) faults.push(`${what} was never handled`);
      // Those of one batch begin together.
      const isTogether =
        before !== undefined && calls.some((call) => begunWith(call, callsOf(before?.event ?? event)));
      if (before !== undefined && begun < before.done && !isTogether)
        faults.push(`${what} was delivered before version ${before.event.modelVersion} was handled`);
      if (isComplete || calls.length > 0) before = { event, done };
    }
  }
  return faults;
}

function begunWith({ begun }: HandlerCallRecord, others: readonly HandlerCallRecord[] | undefined): boolean {
  return others?.some((other) => other.begun === begun) === true;
}

function byVersion(one: DeliverableEvent, other: DeliverableEvent): number {
  return one.modelVersion - other.modelVersion || one.ordinal - other.ordinal;
}

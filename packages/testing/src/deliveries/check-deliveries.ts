import type { LoggedEvent } from '@framework/core';
import type { RegisteredHandler } from '@framework/events';
import type { DeliveryRecord } from './delivery-record.js';

/** An event, as far as it matters who received it when. */
type DeliveredEvent = Pick<LoggedEvent, 'id' | 'type' | 'modelName' | 'modelId' | 'modelVersion' | 'ordinal'>;

/** The log of one database, and what handlers have parked there. */
export interface DeliveredLog {
  readonly events: readonly DeliveredEvent[];
  /** Whether an event waits for a handler, given up or not. */
  readonly isParked: (handler: string, event: DeliveredEvent) => boolean;
  /** Whether it ever did. Default: only what does now. */
  readonly wasParked?: (handler: string, event: DeliveredEvent) => boolean;
}

/** What was delivered, and what might have been. */
export interface Deliveries {
  readonly records: readonly DeliveryRecord[];
  readonly logs: readonly DeliveredLog[];
  readonly handlers: readonly RegisteredHandler[];
  /** The ids of events that were committed and are gone. Default: none. */
  readonly lostIds?: ReadonlySet<string>;
  /** Whether every version of a handler that has run wants the events of a type. Default: that there is but one. */
  readonly isWanted?: (handler: string, type: string) => boolean;
}

/**
 * Every event reaches every handler that wants it, nothing else does, repeats are the same, and no event of a model is delivered
 * before the one before it is handled.
 *
 * What a version of a handler does not want, it may pass over: of such events only those that were parked have to be handled.
 */
export function checkDeliveries({
  records,
  logs,
  handlers,
  lostIds = new Set(),
  isWanted = () => true,
}: Deliveries): readonly string[] {
  const recordsBy = Map.groupBy(records, ({ handler, eventId }) => `${handler} ${eventId}`);
  const committed = new Set([...lostIds, ...logs.flatMap(({ events }) => events.map(({ id }) => id))]);
  return [
    ...notCommitted(records, committed),
    ...differing(recordsBy),
    ...handlers.flatMap((handler) =>
      logs.flatMap((log) =>
        faultsOf(handler, log, isWanted, (event) => recordsBy.get(`${handler.name} ${event.id}`)),
      ),
    ),
  ];
}

function notCommitted(records: readonly DeliveryRecord[], committed: ReadonlySet<string>): readonly string[] {
  return records
    .filter(({ eventId }) => !committed.has(eventId))
    .map(({ handler, eventId }) => `${handler} received ${eventId}, which was never committed`);
}

function differing(recordsBy: ReadonlyMap<string, readonly DeliveryRecord[]>): readonly string[] {
  return [...recordsBy].flatMap(([what, records]) =>
    new Set(records.map(({ text }) => text)).size > 1 ? [`${what}: repeats are not the same`] : [],
  );
}

function faultsOf(
  { name, eventClasses, options }: RegisteredHandler,
  { events, isParked, wasParked = isParked }: DeliveredLog,
  isWanted: (handler: string, type: string) => boolean,
  recordsOf: (event: DeliveredEvent) => readonly DeliveryRecord[] | undefined,
): readonly string[] {
  const faults: string[] = [];
  const isComplete = options.startFrom === 'beginning';
  const wanted = events.filter(({ type }) => eventClasses?.has(type) ?? true);
  const byModel = Map.groupBy(wanted, ({ modelName, modelId }) => `${modelName} ${modelId}`);
  for (const [model, own] of byModel) {
    let before: { readonly event: DeliveredEvent; readonly done: number } | undefined;
    for (const event of own.toSorted(byVersion)) {
      const what = `${name}: ${event.type} of version ${event.modelVersion} of ${model}`;
      const records = recordsOf(event) ?? [];
      const begun = Math.min(...records.map((record) => record.begun));
      const done = Math.min(...records.map((record) => record.done ?? Infinity));
      const isOpen = done === Infinity && !isParked(name, event);
      if (!isWanted(name, event.type)) {
        if (isOpen && wasParked(name, event)) faults.push(`${what} was parked and thrown away`);
        continue;
      }
      if (isComplete && isOpen) faults.push(`${what} was never handled`);
      // Those of one batch begin together.
      const isTogether =
        before !== undefined &&
        records.some((record) => begunWith(record, recordsOf(before?.event ?? event)));
      if (before !== undefined && begun < before.done && !isTogether)
        faults.push(`${what} was delivered before version ${before.event.modelVersion} was handled`);
      if (isComplete || records.length > 0) before = { event, done };
    }
  }
  return faults;
}

function begunWith({ begun }: DeliveryRecord, others: readonly DeliveryRecord[] | undefined): boolean {
  return others?.some((other) => other.begun === begun) === true;
}

function byVersion(one: DeliveredEvent, other: DeliveredEvent): number {
  return one.modelVersion - other.modelVersion || one.ordinal - other.ordinal;
}

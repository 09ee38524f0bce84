import type { LoggedEvent } from '@framework/core/adapter';
import type { RegisteredHandler } from '@framework/events';

import type { DeliveryRecord } from './delivery-record.js';

/** An event, as far as it matters who received it when. */
type DeliveredEvent = Pick<LoggedEvent, 'id' | 'type' | 'modelName' | 'modelId' | 'modelVersion' | 'ordinal'>;

/** The log of one database, and what handlers have blocked there. */
export interface DeliveredLog {
  readonly events: readonly DeliveredEvent[];
  /** Whether an event waits for a handler, given up or not. */
  readonly isBlocked: (handler: string, event: DeliveredEvent) => boolean;
  /** Whether it ever did. Default: only what does now. */
  readonly wasBlocked?: (handler: string, event: DeliveredEvent) => boolean;
}

/** What was delivered, and what might have been. */
export interface Deliveries {
  /** In the order in which handlers were called; those of one batch in the order in which the handler got them. */
  readonly records: readonly DeliveryRecord[];
  readonly logs: readonly DeliveredLog[];
  readonly handlers: readonly RegisteredHandler[];
  /** The ids of events that were committed and are gone. Default: none. */
  readonly lostIds?: ReadonlySet<string>;
  /** By handlers and ids of events: after which place an event must be handled again, because a failover has taken it back. Default: none. */
  readonly undone?: ReadonlyMap<string, number>;
  /** Whether every version of a handler that has run wants the events of a type. Default: that there is but one. */
  readonly isWanted?: (handler: string, type: string) => boolean;
}

/**
 * Every event reaches every handler that wants it, nothing else does, repeats are the same, and no event of a model is delivered
 * before the one before it is handled.
 *
 * What a version of a handler does not want, it may pass over: of such events only those that were blocked have to be handled.
 */
export function checkDeliveries({
  records,
  logs,
  handlers,
  lostIds = new Set(),
  undone = new Map(),
  isWanted = () => true,
}: Deliveries): readonly string[] {
  const placed = records.map((record, place): PlacedRecord => ({ ...record, place }));
  const recordsBy = Map.groupBy(placed, ({ handler, eventId }) => `${handler} ${eventId}`);
  const committed = new Set([...lostIds, ...logs.flatMap(({ events }) => events.map(({ id }) => id))]);
  return [
    ...notCommitted(records, committed),
    ...differing(recordsBy),
    ...handlers.flatMap((handler) =>
      logs.flatMap((log) =>
        faultsOf(handler, log, isWanted, (event) => {
          const what = `${handler.name} ${event.id}`;
          return deliveredOf(recordsBy.get(what) ?? [], undone.get(what));
        }),
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

/** A record with its place among all of them: those of one batch stand there in the order in which the handler got them. */
interface PlacedRecord extends DeliveryRecord {
  readonly place: number;
}

/** What became of one event. */
interface Delivered {
  readonly records: readonly PlacedRecord[];
  /** When it was handled first, and whether it was again where a failover has taken that back. */
  readonly done: number;
  readonly isDone: boolean;
}

function deliveredOf(records: readonly PlacedRecord[], undoneAt: number = -Infinity): Delivered {
  const done = Math.min(...records.map((record) => record.done ?? Infinity));
  const isDone = records.some((record) => record.done !== undefined && record.begun > undoneAt);
  return { records, done, isDone };
}

function faultsOf(
  { name, eventClasses, options }: RegisteredHandler,
  { events, isBlocked, wasBlocked = isBlocked }: DeliveredLog,
  isWanted: (handler: string, type: string) => boolean,
  deliveredOfEvent: (event: DeliveredEvent) => Delivered,
): readonly string[] {
  const faults: string[] = [];
  const isComplete = options.startFrom === 'beginning';
  const wanted = events.filter(({ type }) => eventClasses?.has(type) ?? true);
  const byModel = Map.groupBy(wanted, ({ modelName, modelId }) => `${modelName} ${modelId}`);
  for (const [model, own] of byModel) {
    let before: { readonly event: DeliveredEvent; readonly delivered: Delivered } | undefined;
    for (const event of own.toSorted(byVersion)) {
      const what = `${name}: ${event.type} of version ${event.modelVersion} of ${model}`;
      const delivered = deliveredOfEvent(event);
      const isOpen = delivered.done === Infinity && !isBlocked(name, event);
      if (!isWanted(name, event.type)) {
        if (isOpen && wasBlocked(name, event)) faults.push(`${what} was blocked and thrown away`);
        continue;
      }
      if (isComplete && isOpen) faults.push(`${what} was never handled`);
      else if (isComplete && !delivered.isDone && !isBlocked(name, event))
        faults.push(`${what} was not handled again, although a failover has lost that it was`);
      if (before !== undefined && overtakes(delivered, before.delivered))
        faults.push(`${what} was delivered before version ${before.event.modelVersion} was handled`);
      if (isComplete || delivered.records.length > 0) before = { event, delivered };
    }
  }
  return faults;
}

/** Whether an event was delivered first before an earlier one was handled, and not behind it in one batch. */
function overtakes({ records }: Delivered, before: Delivered): boolean {
  const [first] = records.toSorted((one, other) => one.begun - other.begun);
  if (first === undefined) return false;
  const beside = before.records.find(({ begun }) => begun === first.begun);
  return beside === undefined ? first.begun < before.done : first.place < beside.place;
}

function byVersion(one: DeliveredEvent, other: DeliveredEvent): number {
  return one.modelVersion - other.modelVersion || one.ordinal - other.ordinal;
}

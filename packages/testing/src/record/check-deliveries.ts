import type { LoggedEvent } from '@framework/core/adapter';
import type { RegisteredHandler } from '@framework/events';

import type { DeliveryRecord } from './delivery-record.js';

/** The fields of an event that matter for the order of deliveries. */
type DeliveredEvent = Pick<LoggedEvent, 'id' | 'type' | 'modelName' | 'modelId' | 'modelVersion' | 'ordinal'>;

/** The log of one database, and which of its events are blocked. */
export interface DeliveredLog {
  readonly events: readonly DeliveredEvent[];
  /** Whether an event is blocked for a handler, as a dead letter or not. */
  readonly isBlocked: (handler: string, event: DeliveredEvent) => boolean;
  /** Whether an event was ever blocked for a handler. Default: whether it is blocked now. */
  readonly wasBlocked?: (handler: string, event: DeliveredEvent) => boolean;
}

/** The deliveries to check, and the events that could have been delivered. */
export interface Deliveries {
  /** The calls of handlers, in the order in which they started; within a batch, in the order of the batch. */
  readonly records: readonly DeliveryRecord[];
  readonly logs: readonly DeliveredLog[];
  readonly handlers: readonly RegisteredHandler[];
  /** The ids of committed events that were lost. Default: none. */
  readonly lostIds?: ReadonlySet<string>;
  /**
   * By handler and event id: the position after which the event must be handled again, because a failover has undone
   * its handling. Default: none.
   */
  readonly undone?: ReadonlyMap<string, number>;
  /** Whether every version of a handler that has run wants events of a type. Default: yes, because there is only one. */
  readonly isWanted?: (handler: string, type: string) => boolean;
}

/**
 * Checks that every event reaches every handler that wants it and no other, that repeated deliveries are identical, and
 * that no event of a model is delivered before the previous one is handled.
 *
 * A handler may skip an event that one of its versions does not want. Of such events, only those that were blocked must
 * be handled.
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

/** A record with its position among all records; records of a batch are in the order of the batch. */
interface PlacedRecord extends DeliveryRecord {
  readonly place: number;
}

/** What happened to one event. */
interface Delivered {
  readonly records: readonly PlacedRecord[];
  /** The position at which it was first handled; `Infinity` if it never was. */
  readonly done: number;
  /** Whether it was handled, and handled again if a failover had undone that. */
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
        if (isOpen && wasBlocked(name, event)) faults.push(`${what} was blocked and then dropped`);
        continue;
      }
      if (isComplete && isOpen) faults.push(`${what} was never handled`);
      else if (isComplete && !delivered.isDone && !isBlocked(name, event))
        faults.push(`${what} was not handled again after a failover had undone it`);
      if (before !== undefined && overtakes(delivered, before.delivered))
        faults.push(`${what} was delivered before version ${before.event.modelVersion} was handled`);
      if (isComplete || delivered.records.length > 0) before = { event, delivered };
    }
  }
  return faults;
}

/** Whether an event was delivered before the previous one was handled; within a batch, whether it came before that one. */
function overtakes({ records }: Delivered, before: Delivered): boolean {
  const [first] = records.toSorted((one, other) => one.begun - other.begun);
  if (first === undefined) return false;
  const beside = before.records.find(({ begun }) => begun === first.begun);
  return beside === undefined ? first.begun < before.done : first.place < beside.place;
}

function byVersion(one: DeliveredEvent, other: DeliveredEvent): number {
  return one.modelVersion - other.modelVersion || one.ordinal - other.ordinal;
}

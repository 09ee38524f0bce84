import type { DeliverableEvent, TrackedEvent } from '@framework/core/adapter';
import type { OfShards } from '@framework/operator';

import { cellOf } from '../terminal.js';
import type { Columns } from './answer.js';

/** The columns of events in tables. */
export const eventColumns: Columns<OfShards<TrackedEvent>> = {
  head: ['created', 'shards', 'event', 'model', 'version', 'type', 'action', 'principal', 'not passed'],
  rows: (item) => [eventCells(item)],
  none: 'No events.',
};

/** One line about an event. */
export function eventCells({ event, deliveries, shards }: OfShards<TrackedEvent>): readonly string[] {
  const waiting = deliveries.flatMap(({ handler, state }) =>
    state === 'passed' ? [] : [`${handler}: ${state}`],
  );
  return [
    cellOf(event.createdDate),
    shards.join(', '),
    event.id,
    `${event.modelName} ${event.modelId}`,
    String(event.modelVersion),
    event.type,
    event.actionName,
    event.principal,
    waiting.length === 0 ? '-' : waiting.join(', '),
  ];
}

/** Everything about an event, for people. */
export function eventFields(event: DeliverableEvent): Readonly<Record<string, unknown>> {
  return {
    event: event.id,
    type: event.type,
    model: `${event.modelName} ${event.modelId}`,
    version: event.modelVersion,
    created: event.createdDate,
    action: `${event.actionName} ${event.actionId}`,
    ordinal: event.ordinal,
    principal: event.principal,
    namespace: event.namespace,
    slot: event.slot,
    headers: event.headers,
    params: event.actionParams,
    payload: event.payload,
  };
}

/** The first line of an error, for a cell. */
export function firstLine(error: string | undefined): string {
  return error?.split('\n', 1)[0] ?? '-';
}

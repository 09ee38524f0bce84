import type { DeliverableEvent } from '@framework/core';

/** The columns of a deliverable event, for a `select` from `eventlog.events as e`. */
export const eventColumns = `e.id, e.xid::text as xid, e.position::text as position, e.slot, e.namespace, e.action_id,
  e.action_name, e.action_params, e.principal, e.ordinal, e.model_id, e.model_name, e.model_version::text as model_version,
  e.event_type, e.payload, e.headers, e.started_date, e.created_date`;

/** A row of {@link eventColumns}. */
export interface EventRow {
  readonly id: string;
  readonly xid: string;
  readonly position: string;
  readonly slot: number;
  readonly namespace: string;
  readonly action_id: string;
  readonly action_name: string;
  readonly action_params: unknown;
  readonly principal: string;
  readonly ordinal: number;
  readonly model_id: string;
  readonly model_name: string;
  readonly model_version: string;
  readonly event_type: string;
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  readonly started_date: Date;
  readonly created_date: Date;
}

/** Makes an event of a row of the log. */
export function deliverableEvent(row: EventRow): DeliverableEvent {
  return {
    id: row.id,
    slot: row.slot,
    namespace: row.namespace,
    actionId: row.action_id,
    actionName: row.action_name,
    actionParams: row.action_params,
    principal: row.principal,
    ordinal: row.ordinal,
    modelId: row.model_id,
    modelName: row.model_name,
    modelVersion: Number(row.model_version),
    type: row.event_type,
    payload: row.payload,
    headers: row.headers,
    startedDate: row.started_date,
    createdDate: row.created_date,
  };
}

/** Makes an event of the JSON in which it was parked. */
export function parkedEvent(json: unknown): DeliverableEvent {
  const event = json as DeliverableEvent;
  return { ...event, startedDate: new Date(event.startedDate), createdDate: new Date(event.createdDate) };
}

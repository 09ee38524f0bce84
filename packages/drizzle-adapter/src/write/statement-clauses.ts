import { type ActionRecord, type EventRecord, type KeyRecord, slotOf } from '@framework/core/adapter';

import { slotCount } from '../read/event-row.js';

/** The columns of the log that a write fills. */
export const eventColumns: string =
  '"action_id", "namespace", "action_name", "action_params", "principal", "headers", "started_date", ' +
  '"id", "ordinal", "model_id", "model_name", "model_version", "event_type", "payload", "slot", "early_xid"';

const actionTypes = ['uuid', 'text', 'text', 'jsonb', 'text', 'jsonb', 'timestamptz'];
const eventTypes = ['uuid', 'integer', 'text', 'text', 'bigint', 'text', 'jsonb', 'smallint'];

/** The types of {@link eventColumns}, except for the last column, which is always `false`. */
export const eventColumnTypes: readonly string[] = [...actionTypes, ...eventTypes];

/**
 * The insert of an action's events into the log. Its parameters are {@link eventValues}.
 *
 * @param eventCount at least 1
 * @param firstParameter the number of the clause's first parameter
 * @param source a clause that must return a row for the events to be written, if there is one
 */
export function eventsClause(eventCount: number, firstParameter: number, source: string | undefined): string {
  const firstEvent = firstParameter + actionTypes.length;
  const rows = Array.from({ length: eventCount }, (_unused, index) =>
    parameters(eventTypes, firstEvent + index * eventTypes.length),
  );
  const [only = ''] = rows;
  const isOne = rows.length === 1;
  const values = `(values ${rows.map((row) => `(${row})`).join(', ')}) as event`;
  const from = [...(isOne ? [] : [values]), ...(source === undefined ? [] : [source])].join(', ');
  return (
    `insert into eventlog.events (${eventColumns}) ` +
    // `early_xid` is false: the action read everything before this statement gave the transaction its xid.
    `select ${parameters(actionTypes, firstParameter)}, ${isOne ? only : 'event.*'}, false` +
    (from === '' ? '' : ` from ${from}`)
  );
}

function parameters(types: readonly string[], from: number): string {
  return types.map((type, index) => `$${from + index}::${type}`).join(', ');
}

/** The parameters of {@link eventsClause}, in order. */
export function eventValues(action: ActionRecord, events: readonly (EventRecord | ActionRow)[]): unknown[] {
  const values: unknown[] = [...actionValues(action)];
  for (const event of events) values.push(...eventRowValues(event));
  return values;
}

/** The log's columns about the action of an event, in the order of {@link eventColumns}. */
export function actionValues(action: ActionRecord): readonly string[] {
  return [
    action.id,
    action.namespace,
    action.name,
    action.params,
    action.principal,
    action.headers,
    action.startedDate.toISOString(),
  ];
}

/** The log's columns about an event itself, in the order of {@link eventColumns} after those of the action. */
export function eventRowValues(event: EventRecord | ActionRow): readonly unknown[] {
  return [
    event.id,
    event.ordinal,
    event.modelId,
    event.modelName,
    event.modelVersion,
    event.type,
    event.payload,
    event.modelId === null ? null : slotOf(event.modelId, slotCount),
  ];
}

/** The row that records an action which attached no event on a shard. It has its own id, as an event does. */
export interface ActionRow {
  readonly id: string;
  readonly ordinal: 0;
  readonly modelId: null;
  readonly modelName: null;
  readonly modelVersion: null;
  readonly type: null;
  readonly payload: null;
}

/** How many parameters {@link keyClause} takes. */
export const keyParameterCount = 9;

/** How an insert into `eventlog.idempotency_keys as held` treats an existing key. */
export const keyConflictClause: string =
  'on conflict (key, principal, namespace) do update set action_id = excluded.action_id, ' +
  'action_name = excluded.action_name, fingerprint = excluded.fingerprint, result = excluded.result, ' +
  'created_date = excluded.created_date, expires_date = excluded.expires_date, source = excluded.source ' +
  'where held.expires_date <= now()';

/**
 * The insert of an idempotency key. Its parameters are {@link keyValues}; it returns a row if the key was free.
 *
 * It waits for any transaction that is inserting the same key. An expired key is taken over, so a key is unique at any
 * moment, whether or not its expired row was deleted already.
 *
 * @param firstParameter the number of the clause's first parameter
 * @param condition the insert's condition, if it has one
 */
export function keyClause(firstParameter: number, condition?: string): string {
  const own = (index: number): string => `$${firstParameter + index}`;
  return (
    'insert into eventlog.idempotency_keys as held ' +
    '(key, principal, namespace, action_id, action_name, fingerprint, result, expires_date, source) ' +
    `select ${own(0)}, ${own(1)}, ${own(2)}, ${own(3)}::uuid, ${own(4)}, ${own(5)}, ${own(6)}::jsonb, ` +
    `now() + ${own(7)}::bigint * interval '1 millisecond', ${own(8)}::text ` +
    `${condition === undefined ? '' : `where ${condition} `}${keyConflictClause} returning 1`
  );
}

/** The parameters of {@link keyClause}, in order. */
export function keyValues(
  { id, name }: ActionRecord,
  { key, principal, namespace, fingerprint, result, lifetimeMs, source }: KeyRecord,
): readonly unknown[] {
  return [key, principal, namespace, id, name, fingerprint, result ?? null, lifetimeMs, source ?? null];
}

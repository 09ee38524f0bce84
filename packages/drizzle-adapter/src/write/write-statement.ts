import { type ActionRecord, type EventRecord, type KeyRecord, slotOf } from '@framework/core/adapter';

import type { RowShape } from './row-encoder.js';

/** Everything on which the text of a statement depends; the values do not. */
export interface WriteShape {
  /** Guarded updates first, then additions, each ordered by table and id. */
  readonly changes: readonly { readonly kind: 'add' | 'update'; readonly shape: RowShape }[];
  readonly eventCount: number;
  /**
   * Whether the statement is a transaction by itself. Then it may simply write nothing when its first row is stale. As
   * one of several, it must raise an error, so that the others are rolled back, too.
   */
  readonly alone: boolean;
  /** Whether it inserts an idempotency key before everything else. */
  readonly keyed: boolean;
  /** Whether it first searches the log for earlier commits of the action whose outcome was unknown. */
  readonly repeated: boolean;
  /** Whether a single statement waits only briefly for each lock; SQLSTATE 55P03 then means that nothing was written. */
  readonly brief: boolean;
}

/** Returned instead of a stale row's number when the idempotency key is taken. */
export const keyTaken = -1;

/** Returned instead of a stale row's number when the log holds an earlier commit of the action. */
export const writtenBefore = -2;

/** The number in the error of a statement that should be within a transaction and is not. */
const outsideTransaction = -3;

/**
 * How long a group or a brief statement waits for a lock before all of it is rolled back. One locked row must not delay the
 * other plans for longer.
 */
export const lockTimeoutMs = 100;

/** A setting that is `on` only within a transaction of several statements. */
const inTransaction = 'framework.in_transaction';

/**
 * Begins a transaction whose statements are sent without waiting for the answer.
 *
 * It is one message. If the server refuses it, the later statements find that the setting is off, and raise an error
 * instead of committing one by one.
 */
export function beginText(isBrief: boolean): string {
  const limit = isBrief ? `; set local lock_timeout = ${lockTimeoutMs}` : '';
  return `begin; set local ${inTransaction} = on${limit}`;
}

/** Always true; limits every later wait for a lock in the transaction. */
const limitsLockWait = `set_config('lock_timeout', '${lockTimeoutMs}', true) is not null`;

/** How many parameters the search for earlier commits has: see {@link writeStatement}. */
const searchParameterCount = 2;

/** The shape's key in the cache of statements. */
export function shapeKey({ changes, eventCount, alone, keyed, repeated, brief }: WriteShape): string {
  let key = alone ? 'alone' : 'among';
  for (const { kind, shape } of changes) key += ` ${kind} ${shape.key}`;
  return `${key} ${eventCount}${keyed ? ' keyed' : ''}${repeated ? ' repeated' : ''}${brief ? ' brief' : ''}`;
}

/**
 * Builds one statement that writes guarded updates, additions and events, all or nothing.
 *
 * Each update waits for the one before it (`(select count(*) from u1) = 1`). So rows are locked in the given order, and
 * nothing after a stale row is written. The result is one row `stale`: 0, or the number of the stale update, from 1. If
 * other rows have already been written when a row turns out to be stale, the statement raises SQLSTATE FW001 with that
 * number as its message. It does the same when a trigger skips an addition.
 *
 * As one of several, a statement also raises an error when it is outside of the transaction that {@link beginText}
 * opens.
 *
 * A statement that is alone and has at most one update uses the insert of its events as the main part, which is the fastest form:
 * it returns no row, and inserts no event when the update is stale. Its condition raises an error for a skipped addition. It is
 * evaluated once for each event that follows the update, so not at all when the update is stale; `raise_stale` is volatile, so it
 * is not evaluated early either.
 *
 * An idempotency key comes first, and everything waits for it as for an update (`(select count(*) from k) = 1`). If it
 * is taken, nothing is written: the result is {@link keyTaken}, or SQLSTATE FW002 in a transaction of several
 * statements. With a key, every stale row raises an error, so that the key is rolled back, too.
 *
 * A statement without a key that is repeated after a lost answer first searches the log for its earlier attempts, and
 * everything waits for the search in the same way. If the log holds one, nothing is written: the result is {@link
 * writtenBefore}, or SQLSTATE FW001 with that number.
 *
 * A brief statement limits every lock wait until the end of its transaction, in its first clause that may wait.
 *
 * Parameters, in order: those of the key, or else the action's id and an array of the ids of the rows that were sent
 * (null: any row); for each update its expected version and values; for each addition its values; then those of the
 * events.
 */
export function writeStatement({ changes, eventCount, alone, keyed, repeated, brief }: WriteShape): string {
  const clauses: string[] = [];
  const cases: string[] = [];
  const leftOut: string[] = [];
  let parameter = 1;
  /** The clause that the next one waits for, and the condition that it must meet. */
  let gate: string | undefined;
  let condition = brief ? limitsLockWait : undefined;
  const waitFor = (name: string): void => {
    gate = name;
    condition = `(select count(*) from ${name}) = 1`;
  };
  if (!alone) {
    const isOutside = `current_setting('${inTransaction}', true) is distinct from 'on'`;
    cases.push(`when ${isOutside} then eventlog.raise_stale(${outsideTransaction})`);
  }
  if (keyed) {
    clauses.push(`k as (${keyClause(parameter, condition)})`);
    cases.push(`when (select count(*) from k) = 0 then ${alone ? keyTaken : 'eventlog.raise_key_taken()'}`);
    waitFor('k');
    parameter += keyParameterCount;
  }
  if (repeated) {
    clauses.push(`b as (${searchClause(parameter)}${condition === undefined ? '' : ` and ${condition}`})`);
    cases.push(
      `when (select count(*) from b) = 0 then ${alone ? writtenBefore : `eventlog.raise_stale(${writtenBefore})`}`,
    );
    waitFor('b');
    parameter += searchParameterCount;
  }
  changes.forEach(({ kind, shape }, index) => {
    if (kind === 'update') {
      const name = `u${index + 1}`;
      const outcome = alone && index === 0 && !keyed ? '1' : `eventlog.raise_stale(${index + 1})`;
      clauses.push(`${name} as (${updateClause(shape, parameter, condition)})`);
      cases.push(`when (select count(*) from ${name}) = 0 then ${outcome}`);
      waitFor(name);
      parameter += 1 + shape.columns.length;
    } else {
      const name = `a${index + 1}`;
      clauses.push(`${name} as (${insertClause(shape, parameter, condition)})`);
      leftOut.push(`when (select count(*) from ${name}) = 0 then eventlog.raise_stale(${index + 1})`);
      parameter += shape.columns.length;
    }
  });
  const events = eventCount > 0 ? eventsClause(eventCount, parameter, gate) : undefined;
  if (alone && !keyed && !repeated && cases.length <= 1 && events !== undefined) {
    const where = leftOut.length === 0 ? '' : ` where case ${leftOut.join(' ')} else 0 end = 0`;
    return clauses.length === 0 ? events : `with ${clauses.join(', ')} ${events}${where}`;
  }
  if (events !== undefined) clauses.push(`e as (${events})`);
  // These come last: an addition that waits for a stale row is not written either, and the stale row must be reported.
  cases.push(...leftOut);
  const stale = cases.length === 0 ? '0' : `case ${cases.join(' ')} else 0 end`;
  return `with ${clauses.join(', ')} select ${stale} as stale`;
}

/** Returns one row when the log holds nothing of the earlier attempts. */
function searchClause(parameter: number): string {
  return (
    `select 1 where not exists (select from eventlog.events where action_id = $${parameter}::uuid ` +
    `and ($${parameter + 1}::uuid[] is null or id = any($${parameter + 1}::uuid[])))`
  );
}

function updateClause(shape: RowShape, parameter: number, condition: string | undefined): string {
  const own = (index: number): string => `$${parameter + 1 + index}`;
  const assignments = shape.columns
    .map((column, index) => `${column} = ${own(index)}`)
    .filter((_assignment, index) => index !== shape.idIndex);
  const guards = [
    `${shape.columns[shape.idIndex] ?? ''} = ${own(shape.idIndex)}`,
    `${shape.versionColumn} = $${parameter}`,
    ...(condition === undefined ? [] : [condition]),
  ];
  return `update ${shape.table} set ${assignments.join(', ')} where ${guards.join(' and ')} returning 1`;
}

function insertClause(shape: RowShape, parameter: number, condition: string | undefined): string {
  const values = shape.columns.map((_column, index) => `$${parameter + index}`).join(', ');
  const where = condition === undefined ? '' : ` where ${condition}`;
  return `insert into ${shape.table} (${shape.columns.join(', ')}) select ${values}${where} returning 1`;
}

/** How many slots the log has: the number of rows in `eventlog.slots`. */
export const slotCount = 16;

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
function eventsClause(eventCount: number, firstParameter: number, source: string | undefined): string {
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
function keyClause(firstParameter: number, condition?: string): string {
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

import { lockTimeoutMs } from './group-statement.js';
import type { RowShape } from './row-encoder.js';
import { eventsClause, keyClause, keyParameterCount } from './statement-clauses.js';

/** Everything that the text of a statement depends on, which excludes the values. */
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
  /**
   * Whether a statement that is alone waits only briefly for each lock; SQLSTATE 55P03 then means that nothing was
   * written.
   */
  readonly brief: boolean;
}

/** Returned instead of a stale row's number when the idempotency key is taken. */
export const keyTaken = -1;

/** Returned instead of a stale row's number when the log holds an earlier commit of the action. */
export const writtenBefore = -2;

/** The number in the error of a statement that should be within a transaction and is not. */
const outsideTransaction = -3;

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
 * A statement that is alone and has at most one update uses the insert of its events as the main part, which is the
 * fastest form: it returns no row, and inserts no event when the update is stale. A skipped addition raises an error
 * for each inserted event; there are none when the update is stale. `raise_stale` is volatile, so it is not evaluated
 * early.
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

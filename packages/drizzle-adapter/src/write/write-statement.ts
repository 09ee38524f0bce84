import { lockTimeoutMs } from './group-statement.js';
import type { RowShape } from './row-encoder.js';
import { eventsClause, keyClause, keyParameterCount } from './statement-clauses.js';

/** What determines the text of a statement: everything but the values. */
export interface WriteShape {
  /** Guarded updates first, then additions, each in the order of table and id. */
  readonly changes: readonly { readonly kind: 'add' | 'update'; readonly shape: RowShape }[];
  readonly eventCount: number;
  /**
   * Whether the statement is its whole transaction. Then it may just write nothing when its first row is stale;
   * among others it must raise, so that the others are undone too.
   */
  readonly alone: boolean;
  /** Whether it inserts an idempotency key, before everything else. */
  readonly keyed: boolean;
  /** Whether it first looks in the log for earlier commits of the action, whose outcome was not known. */
  readonly repeated: boolean;
  /** Whether a statement alone waits for each lock for a moment only; then SQLSTATE 55P03 says that nothing was written. */
  readonly brief: boolean;
}

/** What a statement without errors says instead of a stale row's number when the idempotency key is taken. */
export const keyTaken = -1;

/** What it says instead when the log holds an earlier commit of the action. */
export const writtenBefore = -2;

/** What it says in a statement among others that runs outside of their transaction. */
const outsideTransaction = -3;

/** The setting that is `on` within a transaction of several statements, and nowhere else. */
const inTransaction = 'framework.in_transaction';

/**
 * Opens a transaction of several statements that are sent without waiting for its answer.
 *
 * It is one message: when the server refuses it, the statements behind it find themselves outside, and refuse to be
 * transactions of their own.
 */
export function beginText(isBrief: boolean): string {
  const limit = isBrief ? `; set local lock_timeout = ${lockTimeoutMs}` : '';
  return `begin; set local ${inTransaction} = on${limit}`;
}

/** True, and a limit of every wait for a lock that follows in the transaction. */
const limitsLockWait = `set_config('lock_timeout', '${lockTimeoutMs}', true) is not null`;

/** How many parameters the search for earlier commits takes: see {@link writeStatement}. */
const searchParameterCount = 2;

/** Identifies a shape, for the cache of statements. */
export function shapeKey({ changes, eventCount, alone, keyed, repeated, brief }: WriteShape): string {
  let key = alone ? 'alone' : 'among';
  for (const { kind, shape } of changes) key += ` ${kind} ${shape.key}`;
  return `${key} ${eventCount}${keyed ? ' keyed' : ''}${repeated ? ' repeated' : ''}${brief ? ' brief' : ''}`;
}

/**
 * Builds one statement that writes guarded updates, additions and events, all or nothing.
 *
 * Each update waits for the one before (`(select count(*) from u1) = 1`), so rows are locked in the order given, and
 * nothing after a stale row is written. The result is one row `stale`: 0, or the number of the stale update, from 1.
 * A row that turns out stale when others are written already raises SQLSTATE FW001 with that number as its message. So does an
 * addition that is left out, as a trigger can do.
 *
 * A statement among others raises too when it is not within their transaction, which {@link beginText} opens.
 *
 * A statement alone with at most one update has the events' insert as its main part, which is the fastest: instead of
 * giving a row, it inserts no event when the update is stale. An addition that is left out raises for each of its rows, which
 * are none when the update is stale; `raise_stale` is volatile, so it is not evaluated before.
 *
 * An idempotency key comes first, and everything waits for it as for an update (`(select count(*) from k) = 1`). When
 * it is taken, nothing is written: the result is {@link keyTaken}, or SQLSTATE FW002 among other statements. With a
 * key every stale row raises, so that the key is undone too.
 *
 * A statement without a key that is repeated after a lost answer comes after a search for what was sent then, and
 * everything waits for that in the same way. When the log holds it, nothing is written: the result is
 * {@link writtenBefore}, or SQLSTATE FW001 with that number.
 *
 * A brief statement limits every wait for a lock, until the end of its transaction, in its first clause that may wait for one.
 *
 * Parameters, in order: the key's, or the action's id and the array of the ids of rows that were sent (null: any row), per
 * update its expected version and its values, per addition its values, then the events'.
 */
export function writeStatement({ changes, eventCount, alone, keyed, repeated, brief }: WriteShape): string {
  const clauses: string[] = [];
  const cases: string[] = [];
  const leftOut: string[] = [];
  let parameter = 1;
  /** The clause for which the next one waits, and what that has to be. */
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
  // What waits for a stale row is added no more than updated, so these come last.
  cases.push(...leftOut);
  const stale = cases.length === 0 ? '0' : `case ${cases.join(' ')} else 0 end`;
  return `with ${clauses.join(', ')} select ${stale} as stale`;
}

/** One row when the log holds nothing of what was sent before. */
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

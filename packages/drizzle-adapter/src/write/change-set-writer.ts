import { InvariantViolationError, type ShardIdentifier, ShardedId, StaleRecordError } from '@framework/core';
import {
  type Change,
  type ChangeSet,
  type EventRecord,
  type PersistOutcome,
  StorageFailureError,
  UnstorableValueError,
  modelNameOf,
} from '@framework/core/adapter';
import pg from 'pg';

import { sentEventIds } from '../connection/commit-outcome.js';
import { queryOf } from '../connection/storage-error.js';
import type { Row } from './row-encoder.js';
import {
  type ActionRow,
  type WriteShape,
  beginText,
  eventValues,
  keyTaken,
  keyValues,
  shapeKey,
  writeStatement,
  writtenBefore,
} from './write-statement.js';

/** How many statements are kept prepared. Statements of further shapes are sent unprepared. */
const preparedMax = 500;

const staleState = 'FW001';
const keyTakenState = 'FW002';

/** A change set that is ready to be sent. */
export interface PreparedWrite {
  readonly statements: readonly PreparedStatement[];
  /** Whether it waits only briefly for each lock. */
  readonly isBrief: boolean;
}

interface PreparedStatement {
  readonly query: pg.QueryArrayConfig;
  readonly batch: Batch;
  readonly shard: ShardIdentifier;
}

/**
 * Writes a change set in one round trip: as one prepared statement, or as several in a pipeline with begin and commit.
 */
export class ChangeSetWriter {
  readonly #statements = new Map<string, pg.QueryArrayConfig>();

  /**
   * Does all the work that needs no connection.
   *
   * @param isBrief whether to wait only briefly for locks; SQLSTATE 55P03 then means that nothing was written
   */
  prepare(changeSet: ChangeSet, isBrief: boolean): PreparedWrite {
    const batches = batchesOf(changeSet);
    const alone = batches.length === 1;
    const statements = batches.map((batch, index): PreparedStatement => {
      // The first statement decides for all whether the key is free and whether the action has already been committed.
      const { action, key, shard, unknownCommits } = changeSet;
      return {
        batch,
        shard,
        query: this.#query(
          batch,
          index === 0 ? { action, key, unknownCommits } : { action },
          alone,
          isBrief && alone,
        ),
      };
    });
    return { statements, isBrief };
  }

  /**
   * Sends a change set and resolves once it is committed.
   *
   * @returns `key-taken` when its idempotency key is in use, `written-before` when an earlier attempt to commit it
   * succeeded; in both cases nothing is written
   * @throws StaleRecordError `stale-record`
   * @throws StorageFailureError `storage-failure` when the database skipped an addition
   * @throws errors of `pg` unchanged
   */
  async send(client: pg.ClientBase, write: PreparedWrite): Promise<PersistOutcome> {
    const [only] = write.statements;
    if (only === undefined || write.statements.length > 1) return sendPipelined(client, write);
    try {
      const { rows, rowCount } = await client.query<[number]>(only.query);
      const position = rows[0]?.[0] ?? (rowCount === 0 ? 1 : 0);
      if (position === keyTaken) return 'key-taken';
      if (position === writtenBefore) return 'written-before';
      if (position > 0) throw notWritten(only, position);
      return 'written';
    } catch (error) {
      throw notWrittenOr(error, only);
    }
  }

  #query(
    batch: Batch,
    { action, key, unknownCommits }: Pick<ChangeSet, 'action' | 'key' | 'unknownCommits'>,
    alone: boolean,
    brief: boolean,
  ): pg.QueryArrayConfig {
    const values: unknown[] = key === undefined ? [] : [...keyValues(action, key)];
    // A commit with a key can be recognised by the key itself.
    const repeated = key === undefined && unknownCommits !== undefined;
    if (repeated) values.push(action.id, sentEventIds(unknownCommits) ?? null);
    const changes = batch.changes.map(({ kind, row, expectedVersion }) => {
      const { shape, values: own } = row as Row;
      if (kind === 'update') values.push(expectedVersion);
      values.push(...own);
      return { kind, shape };
    });
    if (batch.events.length > 0) values.push(...eventValues(action, batch.events));
    const statement = this.#statement({
      changes,
      eventCount: batch.events.length,
      alone,
      keyed: key !== undefined,
      repeated,
      brief,
    });
    return queryOf(statement, values.map(sendable));
  }

  #statement(shape: WriteShape): pg.QueryArrayConfig {
    const key = shapeKey(shape);
    const known = this.#statements.get(key);
    if (known !== undefined) return known;
    const text = writeStatement(shape);
    if (this.#statements.size >= preparedMax) return { text, rowMode: 'array' };
    const name = `framework_write_${this.#statements.size}`;
    const statement = { name, text, rowMode: 'array' } as const;
    this.#statements.set(key, statement);
    return statement;
  }
}

/** Converts a value into a parameter. The types of `pg` lack this function. */
const { utils } = pg as unknown as { readonly utils: { prepareValue(value: unknown): unknown } };

/**
 * Converts an object as the driver would, but before anything is sent. The driver silently skips a statement with a
 * value that it cannot send if other statements follow, and those would be committed.
 *
 * @throws UnstorableValueError `unstorable-value` when the value has no text
 */
function sendable(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  try {
    return utils.prepareValue(value);
  } catch (error) {
    throw new UnstorableValueError('a value of the plan', 'the driver cannot send it', { cause: error });
  }
}

/**
 * Sends everything before the first answer arrives. After an error the server refuses the rest and rolls back, even if
 * `begin` itself was refused.
 */
async function sendPipelined(
  client: pg.ClientBase,
  { statements, isBrief }: PreparedWrite,
): Promise<PersistOutcome> {
  const outcomes = await Promise.allSettled([
    client.query(beginText(isBrief)),
    ...statements.map(({ query }) => client.query(query)),
    client.query('commit'),
  ]);
  const failed = outcomes.findIndex(({ status }) => status === 'rejected');
  const outcome = outcomes[failed];
  if (outcome?.status !== 'rejected') return 'written';
  if (outcome.reason instanceof pg.DatabaseError) {
    const { code, message } = outcome.reason;
    if (code === keyTakenState) return 'key-taken';
    if (code === staleState && Number(message) === writtenBefore) return 'written-before';
  }
  throw notWrittenOr(outcome.reason, statements[failed - 1]);
}

function notWrittenOr(error: unknown, statement: PreparedStatement | undefined): unknown {
  if (!(error instanceof pg.DatabaseError) || error.code !== staleState || statement === undefined)
    return error;
  return notWritten(statement, Number(error.message));
}

/** The error for a change that wrote no row. */
function notWritten(
  { batch, shard }: PreparedStatement,
  position: number,
): StaleRecordError | StorageFailureError {
  const change = batch.changes[position - 1];
  if (change === undefined)
    throw new InvariantViolationError(`The database reported change ${position}, which was not sent`);
  const { kind, repository, model } = change;
  if (kind === 'update') return StaleRecordError.of(change);
  const name = modelNameOf(repository.model);
  const reason = `the database skipped the insert of ${name} ${model.id.value}: look for a trigger on its table`;
  return new StorageFailureError(shard, reason);
}

/** The maximum number of rows of models, and of events, that one statement writes. The rest goes into further statements. */
const changesPerStatement = 32;
const eventsPerStatement = 64;

/** The rows and events that one statement writes. */
interface Batch {
  /** Updates first, then additions, each ordered by table and id. */
  readonly changes: readonly Change[];
  readonly events: readonly (EventRecord | ActionRow)[];
}

/**
 * Splits a change set into batches; usually there is only one.
 *
 * Across all batches, updated rows are locked in the fixed order (table, id). So two change sets that update the same
 * rows never deadlock.
 */
export function batchesOf(changeSet: ChangeSet): readonly Batch[] {
  const { changes } = changeSet;
  const rows = changes.length > 1 ? changes.toSorted(byTableAndId) : changes;
  const logged = loggedEvents(changeSet);
  const count = Math.max(
    Math.ceil(rows.length / changesPerStatement),
    Math.ceil(logged.length / eventsPerStatement),
  );
  return Array.from({ length: count }, (_unused, index) => ({
    changes: sliceOf(rows, index, changesPerStatement).toSorted(updatesFirst),
    events: sliceOf(logged, index, eventsPerStatement),
  }));
}

/** The log rows that a change set writes: its events, or one row that records its action. */
export function loggedEvents({ shard, events }: ChangeSet): Batch['events'] {
  return events.length > 0 ? events : [actionRow(shard)];
}

function sliceOf<T>(list: readonly T[], index: number, size: number): readonly T[] {
  return list.slice(index * size, (index + 1) * size);
}

function byTableAndId(one: Change, other: Change): number {
  const { table } = (one.row as Row).shape;
  const { table: otherTable } = (other.row as Row).shape;
  if (table !== otherTable) return table < otherTable ? -1 : 1;
  return one.model.id.value < other.model.id.value ? -1 : 1;
}

/**
 * Updates come first, so that a stale change set ends before it adds a row that makes another transaction wait: one that adds the
 * same key to a unique index.
 */
function updatesFirst(one: Change, other: Change): number {
  return Number(one.kind === 'add') - Number(other.kind === 'add');
}

/** An action may record itself on several shards of one database, so each row has its own id. */
function actionRow(shard: ShardIdentifier): ActionRow {
  const id = ShardedId.generate(Object, shard).value;
  return { id, ordinal: 0, modelId: null, modelName: null, modelVersion: null, type: null, payload: null };
}

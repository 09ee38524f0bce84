import {
  type CommitOutcomeUnknownError,
  FrameworkError,
  InvalidCursorError,
  InvariantViolationError,
  type Page,
  type ShardIdentifier,
  StaleRecordError,
  TransientStorageError,
} from '@framework/core';
import {
  type ActionRecord,
  type Change,
  type ChangeSet,
  type EventLog,
  type EventRecord,
  type GroupOutcome,
  type LoggedEvent,
  type PersistOutcome,
  StorageFailureError,
  type TransactionManager,
  modelNameOf,
  pageSize,
  randomUuid,
  updateOfOtherTimeline,
} from '@framework/core/adapter';
import type { DatabaseSync } from 'node:sqlite';

import type { SqliteFile } from './sqlite-file.js';
import { SqliteIdempotencyKeys, isKeyTaken, storeKey } from './sqlite-idempotency-keys.js';

/** The row that a repository makes of a model. */
export interface SqliteRow {
  readonly id: string;
  readonly state: string;
  readonly version: number;
  /** All fields of the model, as JSON. */
  readonly fields: string;
}

/** The transactions of one shard on SQLite. */
export class SqliteTransactionManager implements TransactionManager, EventLog {
  readonly shard: ShardIdentifier;
  readonly keys: SqliteIdempotencyKeys;
  /** Never changes, because a file has no server that could fail over to another one. */
  readonly timeline = 1;
  readonly #file: SqliteFile;

  constructor(shard: ShardIdentifier, file: SqliteFile) {
    this.shard = shard;
    this.#file = file;
    this.keys = new SqliteIdempotencyKeys(this);
  }

  /** Returns a manager as one on SQLite; throws `invariant-violation` if another driver opened it. */
  static of(manager: TransactionManager): SqliteTransactionManager {
    if (manager instanceof SqliteTransactionManager) return manager;
    throw new InvariantViolationError(
      `${manager.shard.toString()} was not opened by sqlite: pass sqlite to openDatabases`,
    );
  }

  get log(): EventLog {
    return this;
  }

  inTransaction<T>(work: () => Promise<T>): Promise<T> {
    return this.#file.inTransaction(this.shard, work);
  }

  isInTransaction(): boolean {
    return this.#file.isInTransaction();
  }

  persist(changes: ChangeSet): Promise<PersistOutcome> {
    return this.write((connection) => writeChangeSet(connection, changes, this.timeline));
  }

  /** Leaves every change set to `persist`, because a group would save no round trips. */
  async persistAll(group: readonly ChangeSet[]): Promise<readonly GroupOutcome[]> {
    return group.map(() => 'single');
  }

  /** Commits of this process always have an answer, but another process may ask about a commit whose answer was lost. */
  isCommitted(unknown: CommitOutcomeUnknownError): Promise<boolean> {
    return this.read((connection) => isLogged(connection, unknown));
  }

  async findByModel(
    { name, id }: { readonly name: string; readonly id: string },
    { limit, after = '0.0' }: { readonly limit: number; readonly after?: string | undefined },
  ): Promise<Page<LoggedEvent>> {
    const size = pageSize(limit);
    const [, version, ordinal] = /^(\d{1,15})\.(\d{1,9})$/.exec(after) ?? [];
    if (version === undefined || ordinal === undefined) throw new InvalidCursorError(after);
    const rows = await this.read((connection) =>
      connection
        .prepare(
          `select id, action_id as actionId, action_name as actionName, principal, ordinal, model_id as modelId,
             model_name as modelName, model_version as modelVersion, event_type as type, payload, created_ms
           from events where model_id = ? and model_name = ? and (model_version, ordinal) > (?, ?)
           order by model_version, ordinal limit ?`,
        )
        .all(id, name, Number(version), Number(ordinal), size + 1),
    );
    const items = rows.slice(0, size).map(({ payload, created_ms, ...event }) => ({
      ...event,
      payload: JSON.parse(String(payload)) as unknown,
      createdDate: new Date(Number(created_ms)),
    })) as unknown as readonly LoggedEvent[];
    const last = items.at(-1);
    return { items, next: rows.length > size ? `${last?.modelVersion}.${last?.ordinal}` : undefined };
  }

  /** Reads within the caller's transaction, if there is one. */
  async read<T>(work: (connection: DatabaseSync) => T): Promise<T> {
    return this.#explained(async () => work(this.#file.connection(this.shard)));
  }

  /** Writes in one transaction of its own. */
  write<T>(work: (connection: DatabaseSync) => T): Promise<T> {
    return this.#explained(() => this.#file.write(this.shard, work));
  }

  /** Converts an error of SQLite, depending on whether trying again can help. */
  async #explained<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const { errcode, message } = error as { readonly errcode?: number; readonly message: string };
      if (FrameworkError.is(error) || errcode === undefined) throw error;
      const isBusy = (errcode & 0xff) === 5;
      if (isBusy) throw new TransientStorageError(this.shard, message, { cause: error });
      throw new StorageFailureError(this.shard, message, { cause: error });
    }
  }
}

/** Writes a change set completely, or throws, so that its transaction is rolled back. */
function writeChangeSet(connection: DatabaseSync, changes: ChangeSet, timeline: number): PersistOutcome {
  const stale = updateOfOtherTimeline(changes, timeline);
  if (stale !== undefined) throw StaleRecordError.of(stale);
  if (isKeyTaken(connection, changes)) return 'key-taken';
  if (changes.unknownCommits?.some((unknown) => isLogged(connection, unknown)) === true)
    return 'written-before';
  storeKey(connection, changes);
  for (const change of changes.changes) writeChange(connection, change);
  writeEvents(connection, changes);
  return 'written';
}

function writeChange(connection: DatabaseSync, change: Change): void {
  const { id, state, version, fields } = change.row as SqliteRow;
  const model = modelNameOf(change.repository.model);
  if (change.kind === 'update') {
    const { changes: count } = connection
      .prepare(
        'update models set state = ?, version = ?, fields = ? where model = ? and id = ? and version = ?',
      )
      .run(state, version, fields, model, id, change.expectedVersion);
    if (count === 0) throw StaleRecordError.of(change);
    return;
  }
  const { changes: count } = connection
    .prepare(
      'insert into models (model, id, state, version, fields) values (?, ?, ?, ?, ?) on conflict do nothing',
    )
    .run(model, id, state, version, fields);
  if (count === 0) throw StaleRecordError.of(change);
}

/** Writes the events; an action without events is recorded by a row without an event type. */
function writeEvents(connection: DatabaseSync, { action, shard, events }: ChangeSet): void {
  const insert = connection.prepare(
    `insert into events (shard, action_id, namespace, action_name, action_params, principal, headers, started_ms,
       created_ms, id, ordinal, model_id, model_name, model_version, event_type, payload)
     values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  );
  const ofAction = columnsOf(action, shard);
  if (events.length === 0) insert.run(...ofAction, randomUuid(), 0, null, null, null, null, null);
  for (const event of events) insert.run(...ofAction, ...eventColumns(event));
}

function columnsOf(action: ActionRecord, shard: ShardIdentifier): readonly (string | number)[] {
  const { id, namespace, name, params, principal, headers, startedDate } = action;
  return [
    shard.toString(),
    id,
    namespace,
    name,
    params,
    principal,
    headers,
    startedDate.getTime(),
    Date.now(),
  ];
}

function eventColumns(event: EventRecord): readonly (string | number)[] {
  const { id, ordinal, modelId, modelName, modelVersion, type, payload } = event;
  return [id, ordinal, modelId, modelName, modelVersion, type, payload];
}

function isLogged(connection: DatabaseSync, { actionId, shard }: CommitOutcomeUnknownError): boolean {
  const found = connection.prepare('select 1 from events where action_id = ? and shard = ? limit 1');
  return found.get(actionId ?? null, shard.toString()) !== undefined;
}

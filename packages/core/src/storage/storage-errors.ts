import type { NotReadyKind } from '../errors/database-not-ready-error.js';
import { FrameworkError } from '../errors/framework-error.js';
import { type ModelClass, modelNameOf } from '../id/model-class.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';

/**
 * A row was changed or removed after the action read it, a model that the action adds has an id that exists already, or another
 * server has taken over since the read and may lack that version. Nothing was written; fresh reads can help.
 */
export class StaleRecordError extends FrameworkError {
  /** The model's name. */
  readonly model: string;
  /** The model's id. */
  readonly id: string;
  /** The version that the row was expected to have; 0 for a row that was to be added. */
  readonly expectedVersion: number;

  constructor(model: string, id: string, expectedVersion: number) {
    super(
      'stale-record',
      expectedVersion === 0
        ? `${model} ${id} exists already: it was added meanwhile, or it is deleted and keeps its id. Run the action again, and let it read the model before it adds it.`
        : `${model} ${id} no longer has version ${expectedVersion}: it was changed or removed meanwhile. Run the action again.`,
    );
    this.model = model;
    this.id = id;
    this.expectedVersion = expectedVersion;
  }

  /** The error for an update that finds another version, or an addition that finds a row; for adapters. */
  static of({ repository, model, expectedVersion }: StaleChange): StaleRecordError {
    return new StaleRecordError(modelNameOf(repository.model), model.id.value, expectedVersion);
  }
}

/** The parts of a staged change that the error shows. */
interface StaleChange {
  readonly repository: { readonly model: ModelClass<unknown> };
  readonly model: { readonly id: { readonly value: string } };
  readonly expectedVersion: number;
}

/** A deadlock, a serialization failure, or a connection lost before the commit was sent; nothing was written. */
export class TransientStorageError extends FrameworkError {
  /** The shard on which it happened. */
  readonly shard: ShardIdentifier;

  /** @param options.place the shard's name, host and database, as in {@link ShardUnavailableError} */
  constructor(
    shard: ShardIdentifier,
    reason: string,
    { place, ...options }: { readonly place?: string | undefined; readonly cause?: unknown } = {},
  ) {
    super(
      'transient-storage',
      `${placed(shard, place)}: ${reason}. Nothing was written; try again.`,
      options,
    );
    this.shard = shard;
  }
}

/**
 * Why a shard is unavailable: its database is not ready, another session holds a lock on the row to be changed, or the
 * data is damaged or cannot be read from disk. In the last case the rest of the database may still work.
 */
export type UnavailableKind = NotReadyKind | 'locked' | 'damaged';

/** The shard cannot be reached, is not migrated yet, or is overloaded; nothing was written. */
export class ShardUnavailableError extends FrameworkError {
  /** The shard that is unavailable. */
  readonly shard: ShardIdentifier;
  /** What is wrong, for operators. It may name hosts and users. */
  readonly reason: string;
  /** Why it is unavailable; `undefined` when it is merely overloaded. */
  readonly kind: UnavailableKind | undefined;

  /** @param options.place the shard's name, host and database, such as `mexico-1 on db-2:5432/mexico` */
  constructor(
    shard: ShardIdentifier,
    reason: string,
    options: {
      readonly place?: string | undefined;
      readonly kind?: UnavailableKind | undefined;
      readonly cause?: unknown;
    } = {},
  ) {
    const { place, kind, cause } = options;
    super(
      'shard-unavailable',
      `${placed(shard, place)} is unavailable: ${reason}. Nothing was written; try again later.`,
      cause === undefined ? undefined : { cause },
    );
    this.shard = shard;
    this.reason = reason;
    this.kind = kind;
  }
}

/** The process has closed its databases, with `databases.close()`; nothing was written. */
export class DatabasesClosedError extends FrameworkError {
  /** The shard that was to be used. */
  readonly shard: ShardIdentifier;

  /** @param place the shard's name, host and database, as in {@link ShardUnavailableError} */
  constructor(shard: ShardIdentifier, place?: string) {
    super(
      'databases-closed',
      `${placed(shard, place)}: this process has closed its databases. Nothing was written; call databases.close() last, after ` +
        'everything that uses them has ended.',
    );
    this.shard = shard;
  }
}

function placed(shard: ShardIdentifier, place: string | undefined): string {
  return place === undefined ? shard.toString() : `${shard.toString()} ${place}`;
}

/** The connection was lost after the commit was sent, and the outcome could not be found out in time. */
export class CommitOutcomeUnknownError extends FrameworkError {
  /** The shard on which the commit was sent. */
  readonly shard: ShardIdentifier;
  /** The action to look for in the log; `undefined` for a transaction without an action. */
  readonly actionId: string | undefined;
  /** Data with which the adapter finds the outcome; opaque to everyone else. */
  readonly session: unknown;

  constructor(
    shard: ShardIdentifier,
    actionId: string | undefined,
    options: { readonly session?: unknown; readonly cause?: unknown } = {},
  ) {
    const check =
      actionId === undefined
        ? 'Check whether its changes are there before you repeat it.'
        : `Look for action_id ${actionId} in the log of that shard before you repeat it.`;
    super(
      'commit-outcome-unknown',
      `${shard}: the connection was lost after the commit was sent. ${check}`,
      options,
    );
    this.shard = shard;
    this.actionId = actionId;
    this.session = options.session;
  }
}

/** What a constraint demands. */
export type ConstraintKind = 'not-null' | 'unique' | 'foreign-key' | 'check' | 'exclusion';

/** What a database reports about a constraint that refused rows, without the values of the rows. */
export interface ConstraintViolation {
  readonly constraint: string | undefined;
  readonly table: string | undefined;
  /** Default: none is known. */
  readonly columns?: readonly string[];
  readonly kind?: ConstraintKind | undefined;
}

/** A unique, foreign-key, check or not-null constraint of the database refused the rows; nothing was written. */
export class ConstraintViolationError extends FrameworkError {
  /** The shard whose database refused the rows. */
  readonly shard: ShardIdentifier;
  /** The constraint's name, if the database reports it. */
  readonly constraint: string | undefined;
  /** The table's name, if the database reports it. */
  readonly table: string | undefined;
  /** The names of its columns, in the database; empty if the database does not report them, as for a check constraint. */
  readonly columns: readonly string[];
  /** What the constraint demands, if the database reports it. */
  readonly kind: ConstraintKind | undefined;

  constructor(
    shard: ShardIdentifier,
    violation: ConstraintViolation,
    options?: { readonly cause?: unknown },
  ) {
    super(
      'constraint-violation',
      `${shard}: ${described(violation)} refused the rows. Nothing was written.`,
      options,
    );
    this.shard = shard;
    this.constraint = violation.constraint;
    this.table = violation.table;
    this.columns = violation.columns ?? [];
    this.kind = violation.kind;
  }
}

/** For example `unique constraint accounts_email_key of table accounts (column email)`. */
function described({ kind, constraint, table, columns = [] }: ConstraintViolation): string {
  // Most servers give no name to a not-null constraint.
  const name = constraint ?? (kind === 'not-null' ? undefined : '(unnamed)');
  const words = [kind, 'constraint', name, 'of table', table ?? '(unknown)'].filter(Boolean).join(' ');
  if (columns.length === 0) return words;
  return `${words} (${columns.length === 1 ? 'column' : 'columns'} ${columns.join(', ')})`;
}

/** The database refused a statement for a reason that a retry will not change; nothing was written. */
export class StorageFailureError extends FrameworkError {
  /** The shard whose database refused the statement. */
  readonly shard: ShardIdentifier;

  constructor(shard: ShardIdentifier, reason: string, options?: { readonly cause?: unknown }) {
    super('storage-failure', `${shard}: ${reason}. Nothing was written; see the cause.`, options);
    this.shard = shard;
  }
}

/**
 * A position in a database's log is no longer valid, because the database has moved to another server, or its server
 * crashed or failed over.
 */
export class HistoryChangedError extends FrameworkError {
  constructor() {
    super(
      'history-changed',
      'The database has crashed, failed over, or been restarted, restored or moved since this position in its log was read. Delivery restarts ' +
        'from the saved cursors on its own. If none of this was expected, check that jdbc-url leads to the right database',
    );
  }
}

/** A transaction was started inside another one on the same shard. */
export class NestedTransactionError extends FrameworkError {
  /** The shard that already has a transaction open here. */
  readonly shard: ShardIdentifier;

  constructor(shard: ShardIdentifier) {
    super(
      'nested-transaction',
      `A transaction on ${shard} is already open here: do the work in the outer inTransaction, or execute the action after it`,
    );
    this.shard = shard;
  }
}

/** A statement was sent in a transaction that had already ended, usually in a promise that nobody awaited. */
export class TransactionOverError extends FrameworkError {
  /** The shard of the ended transaction. */
  readonly shard: ShardIdentifier;

  constructor(shard: ShardIdentifier) {
    super(
      'transaction-over',
      `The transaction on ${shard} has ended: await every call inside inTransaction before its function returns`,
    );
    this.shard = shard;
  }
}

/** No row has this id, or its state is DELETED. */
export class EntityNotFoundError extends FrameworkError {
  /** The model's name. */
  readonly model: string;
  /** The requested id. */
  readonly id: string;

  /** @param reason why it cannot exist, if that is known */
  constructor(model: string, id: string, reason?: string) {
    super('entity-not-found', `${model} ${id} does not exist${reason === undefined ? '' : `: ${reason}`}`);
    this.model = model;
    this.id = id;
  }
}

/** A condition that must match at most one row matched several. */
export class NotUniqueError extends FrameworkError {
  /** The model's name. */
  readonly model: string;

  constructor(model: string) {
    super(
      'not-unique',
      `findOneWhere matched more than one ${model}: make the condition unique or use findAllWhere`,
    );
    this.model = model;
  }
}

/** The sharding strategy cannot derive the shard from an id alone, so a read by id is not possible. */
export class ShardUndeterminedError extends FrameworkError {
  /** The model's name. */
  readonly model: string;
  /** The requested id. */
  readonly id: string;

  constructor(model: string, id: string) {
    super(
      'shard-undetermined',
      `The sharding strategy of ${model} cannot derive the shard from id ${id}: read by a condition (findOneWhere), which searches all shards`,
    );
    this.model = model;
    this.id = id;
  }
}

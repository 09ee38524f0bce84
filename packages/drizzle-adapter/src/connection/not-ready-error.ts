import { DatabaseNotReadyError, type ShardIdentifier, ShardUnavailableError } from '@framework/core';
import { type DatabaseConfig, type NotReadyKind, databaseName, databasePlace } from '@framework/core/adapter';
import pg from 'pg';

import { ReadOnlyServerError, ServerInRecoveryError } from './server-role.js';
import { sqlStateOf } from './storage-error.js';

/** What an error of the driver or the server can mean; the others are found out by looking. */
type FoundKind = Exclude<
  NotReadyKind,
  'not-migrated' | 'migration-not-allowed' | 'schema-newer' | 'other-shards'
>;

/** How much of an error's own text is shown: a migration's holds its statement. */
const textMax = 500;

/** What kind a SQLSTATE is; the first that matches. */
const kindsOfStates: readonly (readonly [RegExp, FoundKind])[] = [
  [/^28|^42501$/, 'access-refused'],
  [/^3D000$/, 'database-missing'],
  [/^25006$/, 'read-only'],
  [/^08/, 'unreachable'],
  // Starting, stopping, out of connections; and rolled back, or a lock not had, or silent or at it for too long, for the sake of others.
  [/^(57|53|40|55P03|25P03|25P04)/, 'not-serving'],
];

/** SQLSTATEs of those of them that say nothing of connections: somebody else is in the way, or something takes too long. */
const heldUpStates = /^(40|55P03|57014|25P03|25P04)/;
const heldUpRemedy =
  'it is tried again; find in pg_locks and pg_stat_activity who holds a lock, or what takes so long';

/**
 * A login refused with 55000, as by a database that takes no connections, comes from here, in no language; a migration may be
 * refused with that state, too.
 */
const loginRoutine = 'CheckMyDatabase';

/** What Node calls errors of certificates and of the handshake. */
const tlsCodes =
  /^(ERR_(TLS|SSL|OSSL|CRYPTO)|CERT_|CRL_|EPROTO$|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|HOSTNAME_|INVALID_|PATH_LENGTH)/;
/** What `pg` says of a server without TLS. */
const tlsMessages = /does not support SSL|SSL connection/i;
/** What `pg` says when it has no password, or the server's proof is wrong. */
const passwordMessages = /^SASL|password must be a string/;
const connectionMessages = /connection|timeout/i;

/**
 * Says why a database cannot serve, and what to do.
 *
 * @param migrates whether the migrations were being applied
 */
export function notReadyError(
  error: unknown,
  config: DatabaseConfig,
  migrates: boolean = false,
): DatabaseNotReadyError {
  if (error instanceof DatabaseNotReadyError) return error;
  const kind = kindOf(error) ?? (migrates ? 'migration-failed' : 'refused');
  return new DatabaseNotReadyError(kind, {
    what: textOf(error),
    remedy: heldUpStates.test(sqlStateOf(error) ?? '') ? heldUpRemedy : remedyOf(kind, config),
    cause: error,
  });
}

function kindOf(error: unknown): FoundKind | undefined {
  if (error instanceof ServerInRecoveryError) return 'in-recovery';
  if (error instanceof ReadOnlyServerError) return 'read-only';
  if (error instanceof pg.DatabaseError && error.code === '55000' && error.routine === loginRoutine)
    return 'not-serving';
  const state = sqlStateOf(error);
  if (state !== undefined) return kindsOfStates.find(([states]) => states.test(state))?.[1];
  return kindOfClient(error) ?? (error instanceof Error ? kindOfClient(error.cause) : undefined);
}

/** Of an error that no server has raised. */
function kindOfClient(error: unknown): FoundKind | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code = '', syscall, message } = error as NodeJS.ErrnoException;
  // Of all files, only those of certificates are read to connect.
  if (tlsCodes.test(code) || syscall === 'open' || syscall === 'read' || tlsMessages.test(message)) {
    return code === 'ECONNRESET' ? 'unreachable' : 'tls-refused';
  }
  if (passwordMessages.test(message)) return 'access-refused';
  const isOfNetwork =
    syscall !== undefined || error instanceof AggregateError || connectionMessages.test(message);
  return isOfNetwork ? 'unreachable' : undefined;
}

function remedyOf(kind: FoundKind, { path, address, username = '' }: DatabaseConfig): string {
  const remedies: Readonly<Record<FoundKind, string>> = {
    unreachable: `start the server, or correct ${path}.jdbc-url`,
    'not-serving': 'it is tried again until the server takes connections',
    'in-recovery': 'it is tried again until the server leads',
    'read-only': 'it is tried again until the server takes writes',
    'access-refused': `correct username and password of ${path}, or what the server grants to ${username || 'this user'}`,
    'database-missing': `create database ${pg.escapeIdentifier(databaseName(address))}, or correct ${path}.jdbc-url`,
    'tls-refused': `correct the server's certificate, or the parameters ssl… of ${path}.jdbc-url`,
    'migration-failed': 'correct the migration, or the data that it fails on',
    refused: "see the server's log",
  };
  return remedies[kind];
}

/** What an error says: of a chain the innermost text first, which tells most; of several addresses each one's. */
function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) {
    return [...new Set(error.errors.map(textOf))].join(', ');
  }
  if (!(error instanceof Error)) return String(error);
  const own = error.message || error.name;
  const text = own.length > textMax ? `${own.slice(0, textMax)} …`.toWellFormed() : own;
  return error.cause instanceof Error ? `${textOf(error.cause)} (${text})` : text;
}

/** What the driver's pool says when all its connections are lent. */
const exhausted = /timeout exceeded/i;

/** The names of a database's shards, and where it is: for errors that say where they happened. */
export class DatabasePlace {
  readonly #config: DatabaseConfig;
  readonly #names = new Map<ShardIdentifier, string>();

  constructor(config: DatabaseConfig) {
    this.#config = config;
  }

  /** Remembers that the database holds a shard. */
  add(shard: ShardIdentifier, name: string): void {
    this.#names.set(shard, name);
  }

  /** Of one of its shards, such as `mexico-1 on db-2:5432/mexico`. */
  of(shard: ShardIdentifier): string {
    return `${this.#names.get(shard) ?? ''} on ${databasePlace(this.#config.address)}`.trimStart();
  }

  /** All of its shards, such as `shard (1, 0) mexico-1 on db-2:5432/mexico`. */
  toString(): string {
    const shards = [...this.#names].map(([shard, name]) => `${shard.toString()} ${name}`);
    return `${shards.join(', ')} on ${databasePlace(this.#config.address)}`;
  }

  /** What a caller gets for whom no connection could be had. */
  unavailable(shard: ShardIdentifier, cause: unknown): ShardUnavailableError {
    const place = this.of(shard);
    // Of a connection that several callers wait for.
    if (cause instanceof ShardUnavailableError) {
      const { reason, kind } = cause;
      return new ShardUnavailableError(shard, reason, { place, kind, cause: cause.cause });
    }
    if (isExhausted(cause)) {
      const waitedMs = this.#config.acquisitionTimeoutMs;
      const reason = `no connection was free within ${waitedMs} ms: find in pg_stat_activity what they wait for, unless the server does not answer at all`;
      return new ShardUnavailableError(shard, reason, { place, cause });
    }
    const reason = notReadyError(cause, this.#config);
    return new ShardUnavailableError(shard, reason.message, {
      place,
      kind: reason.kind,
      cause: reason.cause,
    });
  }
}

/** Whether all connections of a pool were lent for as long as a caller waits. */
export function isExhausted(error: unknown): boolean {
  return error instanceof Error && exhausted.test(error.message);
}

import { type ShardIdentifier, ShardUnavailableError } from '@framework/core';
import {
  type DatabaseConfig,
  DatabaseNotReadyError,
  DatabasesClosedError,
  type NotReadyKind,
} from '@framework/core/adapter';
import pg from 'pg';

import { databaseName, databasePlace } from './postgres-address.js';
import { ReadOnlyServerError, ServerInRecoveryError } from './server-role.js';
import { sqlStateOf } from './storage-error.js';

/** The kinds that follow from an error of the driver or the server. The others are found by checking the database. */
type FoundKind = Exclude<
  NotReadyKind,
  'not-migrated' | 'migration-not-allowed' | 'schema-newer' | 'other-shards' | 'other-encoding'
>;

/** How many characters of an error's text are shown: the error of a migration contains its whole statement. */
const textMax = 500;

/** The kind for each SQLSTATE; the first match counts. */
const kindsOfStates: readonly (readonly [RegExp, FoundKind])[] = [
  [/^28|^42501$/, 'access-refused'],
  [/^3D000$/, 'database-missing'],
  [/^25006$/, 'read-only'],
  [/^08/, 'unreachable'],
  // The server is starting, stopping or out of connections; or it ended the statement because of a conflict, a lock or
  // a timeout.
  [/^(57|53|40|55P03|25P03|25P04)/, 'not-serving'],
];

/**
 * SQLSTATEs of `not-serving` that say nothing about connections: a lock is in the way, or a statement takes too long.
 */
const heldUpStates = /^(40|55P03|57014|25P03|25P04)/;
const heldUpRemedy =
  'the framework retries; look in pg_locks and pg_stat_activity for a held lock or a slow statement';

/**
 * The routine that refuses a login with 55000, for example when a database accepts no connections. Its name is not
 * translated. A failed migration can have the same SQLSTATE, so the state alone does not tell them apart.
 */
const loginRoutine = 'CheckMyDatabase';

/** Node's error codes for certificates and the TLS handshake. */
const tlsCodes =
  /^(ERR_(TLS|SSL|OSSL|CRYPTO)|CERT_|CRL_|EPROTO$|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|HOSTNAME_|INVALID_|PATH_LENGTH)/;
/** How `pg` reports a server without TLS. */
const tlsMessages = /does not support SSL|SSL connection/i;
/** How `pg` reports a missing password, or a server that fails to prove that it knows the password. */
const passwordMessages = /^SASL|password must be a string/;
const connectionMessages = /connection|timeout/i;

/**
 * Makes the error that says why a database is not ready, and what to do.
 *
 * @param migrates whether migrations were being applied
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

/** The kind of an error that did not come from the server. */
function kindOfClient(error: unknown): FoundKind | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code = '', syscall, message } = error as NodeJS.ErrnoException;
  // Certificates are the only files that a connection attempt reads.
  if (tlsCodes.test(code) || syscall === 'open' || syscall === 'read' || tlsMessages.test(message)) {
    return code === 'ECONNRESET' ? 'unreachable' : 'tls-refused';
  }
  if (passwordMessages.test(message)) return 'access-refused';
  const isOfNetwork =
    syscall !== undefined || error instanceof AggregateError || connectionMessages.test(message);
  return isOfNetwork ? 'unreachable' : undefined;
}

function remedyOf(kind: FoundKind, { path, address, username = '', ssl }: DatabaseConfig): string {
  const remedies: Readonly<Record<FoundKind, string>> = {
    unreachable: `start the server, or correct ${path}.jdbc-url`,
    'not-serving': 'the framework retries until the server accepts connections',
    'in-recovery': 'the framework retries until the server is the primary',
    'read-only': 'the framework retries until the server accepts writes',
    'access-refused': `correct username and password of ${path}, or the privileges of ${username || 'this user'}`,
    'database-missing': `create database ${pg.escapeIdentifier(databaseName(address))}, or correct ${path}.jdbc-url`,
    'tls-refused': `correct the server's certificate, or ${ssl ? `${path}.ssl` : `the ssl… parameters of ${path}.jdbc-url`}`,
    'migration-failed': 'correct the migration, or the data on which it fails',
    refused: "see the server's log",
  };
  return remedies[kind];
}

/**
 * The text of an error. The innermost cause comes first, since it says the most; an error for several addresses lists
 * all of them.
 */
function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) {
    return [...new Set(error.errors.map(textOf))].join(', ');
  }
  if (!(error instanceof Error)) return String(error);
  const own = error.message || error.name;
  const text = own.length > textMax ? `${own.slice(0, textMax)} …`.toWellFormed() : own;
  return error.cause instanceof Error ? `${textOf(error.cause)} (${text})` : text;
}

/** How the driver's pool reports that all its connections are in use. */
const exhausted = /timeout exceeded/i;

/** Names a database's shards and its address in error messages. */
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

  /** One of its shards, such as `mexico-1 on db-2:5432/mexico`. */
  of(shard: ShardIdentifier): string {
    return `${this.#names.get(shard) ?? ''} on ${databasePlace(this.#config.address)}`.trimStart();
  }

  /** All of its shards, such as `shard (1, 0) mexico-1 on db-2:5432/mexico`. */
  toString(): string {
    const shards = [...this.#names].map(([shard, name]) => `${shard.toString()} ${name}`);
    return `${shards.join(', ')} on ${databasePlace(this.#config.address)}`;
  }

  /** The error for a caller who could not get a connection. */
  unavailable(shard: ShardIdentifier, cause: unknown): ShardUnavailableError | DatabasesClosedError {
    const place = this.of(shard);
    if (cause instanceof DatabasesClosedError) return new DatabasesClosedError(shard, place);
    // Several callers may have waited for the same connection; each error names its caller's own shard.
    if (cause instanceof ShardUnavailableError) {
      const { reason, kind } = cause;
      return new ShardUnavailableError(shard, reason, { place, kind, cause: cause.cause });
    }
    if (isExhausted(cause)) {
      const waitedMs = this.#config.acquisitionTimeoutMs;
      const reason = `no connection was free within ${waitedMs} ms: look in pg_stat_activity for what the connections wait for, or check that the server answers at all`;
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

/** Whether all connections of a pool were in use for as long as a caller may wait. */
export function isExhausted(error: unknown): boolean {
  return error instanceof Error && exhausted.test(error.message);
}

/**
 * Why a database is not ready.
 *
 * | kind                    | what is wrong                                                             |
 * | ----------------------- | ------------------------------------------------------------------------- |
 * | `unreachable`           | no connection: refused, not answered in time, or unknown host             |
 * | `not-serving`           | the server is starting, stopping or out of connections, or a lock is held |
 * | `in-recovery`           | the server is a standby, or is still being promoted                       |
 * | `read-only`             | the server is the primary, but refuses writes                             |
 * | `access-refused`        | the server refuses the user, the password, or the client's address        |
 * | `database-missing`      | the server has no database with that name                                 |
 * | `tls-refused`           | a certificate is untrusted, expired or missing, or TLS is not offered     |
 * | `not-migrated`          | migrations are missing and not applied here, or a restore is running      |
 * | `migration-not-allowed` | migrations are missing, and the role may not apply them                   |
 * | `schema-newer`          | the database has migrations that this process does not know               |
 * | `other-shards`          | the database does not hold a shard that the configuration assigns to it   |
 * | `other-encoding`        | the database's encoding is not UTF-8, so it cannot store every text       |
 * | `migration-failed`      | a migration failed, or the application's migrations cannot be read        |
 * | `refused`               | the server refused for any other reason                                   |
 */
export type NotReadyKind =
  | 'unreachable'
  | 'not-serving'
  | 'in-recovery'
  | 'read-only'
  | 'access-refused'
  | 'database-missing'
  | 'tls-refused'
  | 'not-migrated'
  | 'migration-not-allowed'
  | 'schema-newer'
  | 'other-shards'
  | 'other-encoding'
  | 'migration-failed'
  | 'refused';

/** The kinds that may end without a change to this configuration or database. */
const passing: ReadonlySet<NotReadyKind> = new Set([
  'unreachable',
  'not-serving',
  'in-recovery',
  'read-only',
  'not-migrated',
]);

/** A database is not ready. The message says why and what to do; the cause is the driver's error. */
export class DatabaseNotReadyError extends Error {
  override readonly name = 'DatabaseNotReadyError';
  readonly kind: NotReadyKind;

  /**
   * @param what the problem, such as `connect ECONNREFUSED 127.0.0.1:5432`; never contains a password
   * @param remedy what to do, such as `start the server`
   */
  constructor(
    kind: NotReadyKind,
    { what, remedy, cause }: { readonly what: string; readonly remedy: string; readonly cause: unknown },
  ) {
    super(`${what}: ${remedy}`, { cause });
    this.kind = kind;
  }

  /** Whether waiting can help. Otherwise somebody must correct the configuration or the database. */
  get mayPass(): boolean {
    return passing.has(this.kind);
  }
}

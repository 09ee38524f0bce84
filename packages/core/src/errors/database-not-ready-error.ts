/**
 * Why a database cannot serve.
 *
 * | kind                    | what is wrong                                                            |
 * | ----------------------- | ------------------------------------------------------------------------ |
 * | `unreachable`           | no connection: refused, not answered in time, or the host is not known   |
 * | `not-serving`           | the server starts or stops, is out of connections, or a lock is held      |
 * | `in-recovery`           | the server is a standby, or does not lead yet                            |
 * | `read-only`             | the server leads, and takes no writes                                    |
 * | `access-refused`        | the server refuses the user, the password, or the host it is called from |
 * | `database-missing`      | the server has no database of that name                                  |
 * | `tls-refused`           | a certificate is not trusted, expired or missing, or TLS is not offered  |
 * | `not-migrated`          | migrations are missing and not applied here, or a restore has not ended  |
 * | `migration-not-allowed` | migrations are missing, and the role may not apply them                  |
 * | `schema-newer`          | migrations are applied that this process does not know                   |
 * | `other-shards`          | the database holds other shards than the configuration puts there        |
 * | `migration-failed`      | a migration was refused, or the application's cannot be read             |
 * | `refused`               | the server refused something else                                        |
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
  | 'migration-failed'
  | 'refused';

/** The kinds that pass without anybody mending something in this configuration or this database. */
const passing: ReadonlySet<NotReadyKind> = new Set([
  'unreachable',
  'not-serving',
  'in-recovery',
  'read-only',
  'not-migrated',
]);

/** Why a database cannot serve now, and what to do about it. Its message holds both; its cause is the driver's error. */
export class DatabaseNotReadyError extends Error {
  override readonly name = 'DatabaseNotReadyError';
  readonly kind: NotReadyKind;

  /**
   * @param what is wrong, such as `connect ECONNREFUSED 127.0.0.1:5432`; never a password
   * @param remedy is what to do, such as `start the server`
   */
  constructor(
    kind: NotReadyKind,
    { what, remedy, cause }: { readonly what: string; readonly remedy: string; readonly cause: unknown },
  ) {
    super(`${what}: ${remedy}`, { cause });
    this.kind = kind;
  }

  /** Whether waiting can help; else somebody has to correct the configuration, or the database. */
  get mayPass(): boolean {
    return passing.has(this.kind);
  }
}

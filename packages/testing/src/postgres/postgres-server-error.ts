/**
 * Which fault it was: `directory-in-use` (another process runs its server there), `directory-unusable` (it may not be
 * read or written, or a part of it is missing or wrong), `initialisation-failed`, `start-failed`, `unsupported-platform` (no server binaries, or not startable, on this machine),
 * `server-unreachable` (`TEST_DATABASE_URL` names a server that does not answer).
 */
export type PostgresServerErrorCode =
  | 'directory-in-use'
  | 'directory-unusable'
  | 'initialisation-failed'
  | 'start-failed'
  | 'unsupported-platform'
  | 'server-unreachable';

/** Says why a PostgreSQL server for development or tests cannot be had, and what to do about it. */
export class PostgresServerError extends Error {
  override readonly name = 'PostgresServerError';
  readonly code: PostgresServerErrorCode;

  constructor(code: PostgresServerErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

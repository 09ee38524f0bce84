export { EmbeddedPostgres, type EmbeddedPostgresOptions } from './embedded-postgres.js';
export { PostgresServerError, type PostgresServerErrorCode } from './deadline.js';

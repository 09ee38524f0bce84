export { EmbeddedPostgres, type EmbeddedPostgresOptions } from './embedded/embedded-postgres.js';
export { startTestPostgres, TestPostgres, createTestDatabase, TestDatabase } from './test-postgres.js';
export { PostgresServerError, type PostgresServerErrorCode } from './embedded/deadline.js';

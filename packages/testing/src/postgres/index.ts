export { EmbeddedPostgres, type EmbeddedPostgresOptions } from './embedded/embedded-postgres.js';
export { startTestPostgres } from './start-test-postgres.js';
export { TestPostgres } from './test-postgres.js';
export { createTestDatabase } from './create-test-database.js';
export { TestDatabase } from './test-database.js';
export { PostgresServerError, type PostgresServerErrorCode } from './postgres-server-error.js';

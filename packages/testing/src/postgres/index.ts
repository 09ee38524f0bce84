export { startTestPostgres, TestPostgres, createTestDatabase, TestDatabase } from './test-postgres.js';
export { TestPostgresError, type TestPostgresErrorCode } from './test-postgres.js';

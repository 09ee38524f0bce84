import { startTestPostgres } from './start-test-postgres.js';
import type { TestDatabase } from './test-database.js';
import type { TestPostgres } from './test-postgres.js';

let server: Promise<TestPostgres> | undefined;

/**
 * An empty database for a test file, on the server of the test run.
 *
 * The server is the one that the global setup started, or else one that this process starts on the first call and that
 * ends with it. Drop the database when the file is done:
 *
 * ```ts
 * const database = await createTestDatabase();
 * afterAll(() => database.drop());
 * ```
 */
export async function createTestDatabase(): Promise<TestDatabase> {
  server ??= startTestPostgres();
  return (await server).createDatabase();
}

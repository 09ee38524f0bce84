import { startTestPostgres } from './test-postgres.js';

/**
 * Starts one PostgreSQL server for a whole vitest run. List it in the root configuration's `globalSetup`.
 *
 * Test files find the server through `TEST_DATABASE_URL`, which the workers inherit and `createTestDatabase` reads; processes that
 * tests start inherit it as well.
 */
export async function setup(): Promise<() => Promise<void>> {
  const server = await startTestPostgres();
  const before = process.env['TEST_DATABASE_URL'];
  process.env['TEST_DATABASE_URL'] = server.url;
  return async () => {
    if (before === undefined) delete process.env['TEST_DATABASE_URL'];
    await server.stop();
  };
}

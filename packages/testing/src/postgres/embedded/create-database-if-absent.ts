import { Client, escapeIdentifier } from 'pg';

const duplicateDatabase = '42P04';
const uniqueViolation = '23505'; // What two simultaneous creations may end in.

/** Creates the database on the server of `url` unless it exists. */
export async function createDatabaseIfAbsent(url: string, name: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (rowCount === 0) await client.query(`create database ${escapeIdentifier(name)}`);
  } catch (error) {
    const { code } = error as { readonly code?: string };
    if (code !== duplicateDatabase && code !== uniqueViolation) throw error;
  } finally {
    await client.end();
  }
}

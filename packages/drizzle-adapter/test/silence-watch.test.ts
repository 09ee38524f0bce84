import pg from 'pg';
import { expect, onTestFinished, test, vi } from 'vitest';

import { ClosingClient } from '../src/connection/client.js';
import { SilenceWatch } from '../src/connection/silence-watch.js';
import { emptyDatabase } from './fixtures/empty-database.js';

test('a connection whose session is at work is kept, even if a pooler adds the host to its name', async () => {
  const { url } = await emptyDatabase();
  const settings = { connectionString: url, application_name: 'framework migrations 0123456789ab' };
  const client = new pg.Client({
    connectionString: url,
    application_name: `${settings.application_name} - 127.0.0.1:50123`,
  });
  client.on('error', () => undefined);
  await client.connect();
  onTestFinished(() => client.end());
  new SilenceWatch(client, settings).start();
  // The statement takes longer than a connection may be silent before the server is asked about it.
  const { rows } = await client.query(`select 'done' as outcome from pg_sleep(7)`);
  expect(rows).toEqual([{ outcome: 'done' }]);
});

test('a watch leaves no session of its own on the server when the watched one is at work', async () => {
  const { url } = await emptyDatabase();
  const settings = { connectionString: url, application_name: 'framework migrations 0123456789ab' };
  const client = new pg.Client(settings);
  client.on('error', () => undefined);
  await client.connect();
  new SilenceWatch(client, settings).start();
  const counting = new pg.Client({ connectionString: url });
  await counting.connect();
  onTestFinished(() => counting.end());
  const sessions = async (): Promise<readonly string[]> => {
    const { rows } = await counting.query<{ name: string }>(
      `select application_name as name from pg_stat_activity
       where datname = current_database() and application_name like 'framework%'`,
    );
    return rows.map(({ name }) => name);
  };
  const connect = vi.spyOn(ClosingClient.prototype, 'connect');
  await client.query('select pg_sleep(7)');
  await client.end();
  expect(connect).toHaveBeenCalledOnce();
  await expect.poll(sessions).toEqual([]);
});

// @module-tag postgres
import { EmbeddedPostgres } from '@framework/embedded-postgres';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';

import { prepareSlot } from '../src/replication-slot.js';

async function databaseWithLog(): Promise<pg.Client> {
  const server = await EmbeddedPostgres.startTemporary({ settings: { fsync: 'off', wal_level: 'logical' } });
  onTestFinished(() => server.stop());
  const client = new pg.Client({ connectionString: server.url('postgres') });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('create schema eventlog create table events (id integer)');
  return client;
}

test('a slot is kept, unless the server has refused to stream from its position', async () => {
  const client = await databaseWithLog();
  const settings = { slot: 'streamed', publication: 'events', create: true };
  const reasons: string[] = [];
  const prepare = (isSlotOutdated: boolean) =>
    prepareSlot(client, { ...settings, isSlotOutdated }, (reason) => reasons.push(reason));
  const created = await prepare(false);
  await client.query('drop publication events');
  await client.query(
    "create publication events for table eventlog.events with (publish = 'insert', publish_via_partition_root = true)",
  );
  await expect(prepare(false)).resolves.toBe(created);
  await expect(prepare(true)).resolves.not.toBe(created);
  expect(reasons).toEqual([expect.stringContaining('events is newer than the replication slot streamed')]);
  const refused = prepareSlot(client, { ...settings, create: false, isSlotOutdated: true }, () => undefined);
  await expect(refused).rejects.toThrow('drop the slot and create it again');
});

import type { DatabaseConfig } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

import { isBehindPooler } from '../connection/client.js';
import { endTimeouts, inDatabase } from './in-database.js';

/** How long a change of the log's tables waits for a lock. Later statements queue behind it meanwhile. */
const lockTimeoutMs = 100;
const retryMs = 1_000;
const triesMax = 60;
/** SQLSTATE of a lock that was not available in time. */
const lockNotAvailable = '55P03';

const definition = '(epoch, xid, position) include (slot) where event_type is not null';

/**
 * Builds the index on epochs for a log from before that index existed, partition by partition and without blocking
 * anybody, and then drops the previous index, which remains in use until then. Does nothing when there is nothing to
 * do, or while another process does it.
 *
 * @param signal aborts it; the next process that opens the database continues
 * @throws errors of `pg`; the next process that opens the database continues then, too
 * @throws Error behind a pooler, which cannot reserve a session for it
 */
export async function replaceDeliveryIndex(config: DatabaseConfig, signal: AbortSignal): Promise<void> {
  try {
    await inDatabase(
      config,
      signal,
      async (client) => {
        if (await isNeeded(client)) await replace(client, signal);
      },
      'framework index',
    );
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/**
 * @returns whether this process must replace the index; false while another process does so. The lock ends with the session
 * @throws Error behind a pooler, which could give the lock and the settings to other clients
 */
async function isNeeded(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ needed: boolean }>(
    `select to_regclass('eventlog.events_delivery_idx') is not null as needed`,
  );
  if (rows[0]?.needed !== true) return false;
  if (await isBehindPooler(client)) {
    throw new Error(
      'there is a pooler in front of the server: run migrateShards once with the address of the server itself',
    );
  }
  const locked = await client.query<{ locked: boolean }>(
    `select pg_try_advisory_lock(hashtextextended('eventlog.events_history_idx', 0)) as locked`,
  );
  return locked.rows[0]?.locked === true;
}

async function replace(client: pg.Client, signal: AbortSignal): Promise<void> {
  await endTimeouts(client, 'session');
  await soon(
    client,
    signal,
    `create index if not exists events_history_idx on only eventlog.events ${definition}`,
  );
  for (const partition of await partitionsWithout(client)) {
    const index = `eventlog.${pg.escapeIdentifier(`${partition}_history_idx`)}`;
    // Left over from an unfinished run.
    await client.query(`drop index concurrently if exists ${index}`);
    await client.query(
      `create index concurrently ${pg.escapeIdentifier(`${partition}_history_idx`)}
       on eventlog.${pg.escapeIdentifier(partition)} ${definition}`,
    );
    await soon(client, signal, `alter index eventlog.events_history_idx attach partition ${index}`);
  }
  await soon(client, signal, 'drop index eventlog.events_delivery_idx');
}

async function partitionsWithout(client: pg.Client): Promise<readonly string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select child.relname as name from pg_inherits p join pg_class child on child.oid = p.inhrelid
     where p.inhparent = 'eventlog.events'::regclass and not exists (
       select from pg_index i join pg_inherits attached on attached.inhrelid = i.indexrelid
       where i.indrelid = child.oid and attached.inhparent = 'eventlog.events_history_idx'::regclass)
     order by child.relname`,
  );
  return rows.map(({ name }) => name);
}

/**
 * Repeats a statement until it gets its lock. Each try gives up quickly, so that other statements do not queue behind
 * it.
 */
async function soon(client: pg.Client, signal: AbortSignal, text: string): Promise<void> {
  await client.query(`set lock_timeout = ${lockTimeoutMs}`);
  for (let tryCount = 1; ; tryCount++) {
    try {
      await client.query(text);
      break;
    } catch (error) {
      const isLocked = error instanceof pg.DatabaseError && error.code === lockNotAvailable;
      if (!isLocked || tryCount === triesMax || signal.aborted) throw error;
      await delay(retryMs);
    }
  }
  await client.query('set lock_timeout = 0');
}

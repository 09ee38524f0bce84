import type pg from 'pg';

import { messageOf, sqlStateOf } from '../connection/storage-error.js';
import { partitionCallsMax, partitionMonthsAhead } from '../delivery/pg-delivery-store.js';
import { readingCommitted } from './in-database.js';

/** SQLSTATE of a lock that was not available in time. */
const lockNotAvailable = '55P03';
/** SQLSTATE of a missing permission. */
const permissionDenied = '42501';

/**
 * Creates the partitions of the next months, and reports it if that of this month or the next one is missing afterwards. Delivery
 * creates partitions as well, and the default partition contains the events that are written before.
 */
export async function createPartitions(
  client: pg.Client,
  warn: (kind: 'log-partitions', message: string) => void,
): Promise<void> {
  const refusal = await refusedPartitions(client);
  const missing = await missingPartitions(client);
  if (missing.length === 0) return;
  const reason =
    refusal ?? 'eventlog.events_default contains its events, or is too large to be searched for them';
  warn(
    'log-partitions',
    `the log lacks the partition of this month or the next one (${missing.join(', ')}): ${reason}`,
  );
}

/** Why partitions could not be created now; `undefined` when no call was refused. */
async function refusedPartitions(client: pg.Client): Promise<string | undefined> {
  const create = async (): Promise<boolean> => {
    const text = 'select eventlog.create_partitions($1) as more';
    const { rows } = await client.query<{ more: boolean }>(text, [partitionMonthsAhead]);
    return rows[0]?.more === true;
  };
  try {
    for (let call = 1, more = true; more && call <= partitionCallsMax; call++)
      more = await readingCommitted(client, create);
    return undefined;
  } catch (error) {
    const state = sqlStateOf(error);
    if (state === permissionDenied) return `the role may not create it (${messageOf(error)})`;
    if (state === lockNotAvailable) return 'the log is being read; delivery tries again';
    throw error;
  }
}

async function missingPartitions(client: pg.Client): Promise<readonly string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select 'events_' || to_char(month, 'YYYY_MM') as name
     from (values (now() at time zone 'UTC'), (date_trunc('month', now() at time zone 'UTC') + interval '1 month')) as needed (month)
     where to_regclass('eventlog.events_' || to_char(month, 'YYYY_MM')) is null`,
  );
  return rows.map(({ name }) => name);
}

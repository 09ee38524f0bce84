import type { RetainedLog } from '@framework/core/adapter';
import { escapeIdentifier, escapeLiteral } from 'pg';
import type pg from 'pg';

import { sqlStateOf } from '../connection/storage-error.js';

/** The publication and the replication slot of one handler in one database. */
export interface SlotSettings {
  readonly slot: string;
  readonly publication: string;
  /** Whether they are created when they are missing. */
  readonly create: boolean;
}

/** Thrown when the log cannot be streamed now; the message says why, and what to do. */
export class StreamRefusedError extends Error {
  override readonly name = 'StreamRefusedError';
  /** Whether another process streams instead, as it should be. */
  readonly isTaken: boolean;

  constructor(message: string, options: { readonly isTaken?: boolean; readonly cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.isTaken = options.isTaken ?? false;
  }
}

const serverText = `
  select current_setting('wal_level') as "walLevel", pg_is_in_recovery() as "isStandby",
    current_setting('server_version_num')::integer as version`;

/** A column list or a filter of rows would leave events out; PostgreSQL 14 has neither. */
const publicationText = `
  select p.pubinsert and p.pubviaroot and (p.puballtables or exists (
    select from pg_publication_rel r
    where r.prpubid = p.oid and r.prrelid = 'eventlog.events'::regclass
      and to_jsonb(r) ->> 'prqual' is null and to_jsonb(r) ->> 'prattrs' is null)) as complete
  from pg_publication p where p.pubname = $1`;

const slotText = `
  select s.database = current_database() and s.plugin = 'pgoutput' and not s.temporary as fits, s.wal_status as status,
    s.active_pid as "activePid", s.confirmed_flush_lsn::text as "confirmedLsn",
    case when pg_is_in_recovery() then 0
      else coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0) end::double precision as "retainedBytes"
  from pg_replication_slots s where s.slot_name = $1`;

/** Since PostgreSQL 17, a standby can have a copy of the slot, with which a stream continues after a failover. */
const failoverVersion = 170_000;

/** A slot can be created only when all transactions that were open before have ended. */
const creationTimeoutMs = 600_000;

interface SlotRow {
  readonly fits: boolean;
  readonly status: string | null;
  readonly activePid: number | null;
  readonly confirmedLsn: string | null;
  readonly retainedBytes: number;
}

/**
 * Checks that a database can be streamed, and creates what is missing.
 *
 * @param onRecreated called with the reason when a slot had to be replaced
 * @returns the position that the slot has confirmed
 * @throws StreamRefusedError when it cannot
 */
export async function prepareSlot(
  client: pg.Client,
  settings: SlotSettings,
  onRecreated: (reason: string) => void,
): Promise<string> {
  const { version } = await checkServer(client);
  const hasCreated = await preparePublication(client, settings);
  const found = await findSlot(client, settings.slot);
  if (found === undefined) return createSlot(client, settings, version);
  const { slot } = settings;
  if (!found.fits) {
    throw new StreamRefusedError(
      `The replication slot ${slot} belongs to another database or plugin: set another slot for this database`,
    );
  }
  if (found.activePid !== null) {
    throw new StreamRefusedError(
      `The replication slot ${slot} is used by the server's process ${found.activePid}`,
      {
        isTaken: true,
      },
    );
  }
  const isLost = found.status === 'lost' || found.confirmedLsn === null;
  // A slot is useless if it is older than its publication: PostgreSQL looks for that in the catalog of back then.
  if (!isLost && !hasCreated) return found.confirmedLsn ?? '';
  const why = isLost
    ? `The server has invalidated the replication slot ${slot}, probably because of max_slot_wal_keep_size`
    : `The publication ${settings.publication} was missing`;
  if (!settings.create) throw new StreamRefusedError(`${why}: drop the slot and create it again`);
  await client.query('select pg_drop_replication_slot($1)', [slot]);
  onRecreated(`${why}; the slot was created again, and the events in between are read by cursor`);
  return createSlot(client, settings, version);
}

/** What the server keeps for a slot; `undefined` when there is no such slot. */
export async function retainedBy(client: pg.Client, slot: string): Promise<RetainedLog | undefined> {
  const found = await findSlot(client, slot);
  if (found === undefined) return undefined;
  const { status, activePid, retainedBytes } = found;
  return { name: slot, retainedBytes, status: status ?? 'lost', activePid: activePid ?? undefined };
}

async function checkServer(client: pg.Client): Promise<{ readonly version: number }> {
  const { rows } = await client.query<{ walLevel: string; isStandby: boolean; version: number }>(serverText);
  const [{ walLevel, isStandby, version }] = rows as [(typeof rows)[0]];
  if (isStandby)
    throw new StreamRefusedError('The server is a standby: its log is streamed once it is promoted');
  if (walLevel === 'logical') return { version };
  throw new StreamRefusedError(
    `The server has wal_level = ${walLevel}: set it to logical and restart the server, to stream its log`,
  );
}

/** @returns whether it was created */
async function preparePublication(
  client: pg.Client,
  { publication, create }: SlotSettings,
): Promise<boolean> {
  const { rows } = await client.query<{ complete: boolean }>(publicationText, [publication]);
  const statement =
    `create publication ${escapeIdentifier(publication)} for table eventlog.events ` +
    `with (publish = 'insert', publish_via_partition_root = true)`;
  const [found] = rows;
  if (found?.complete === true) return false;
  if (found !== undefined) {
    throw new StreamRefusedError(
      `The publication ${publication} does not publish all inserts into the log: drop it, and run: ${statement}`,
    );
  }
  if (!create) throw new StreamRefusedError(`There is no publication ${publication}: run: ${statement}`);
  await creating(`the publication ${publication}`, statement, () => client.query(statement));
  return true;
}

async function createSlot(
  client: pg.Client,
  { slot, create }: SlotSettings,
  version: number,
): Promise<string> {
  const failover = version >= failoverVersion ? ', failover => true' : '';
  const statement = `select pg_create_logical_replication_slot(${escapeLiteral(slot)}, 'pgoutput'${failover})`;
  if (!create) throw new StreamRefusedError(`There is no replication slot ${slot}: run: ${statement}`);
  const options = { text: `${statement}::text`, query_timeout: creationTimeoutMs };
  await creating(`the replication slot ${slot}`, statement, () => client.query(options));
  const confirmedLsn = (await findSlot(client, slot))?.confirmedLsn;
  if (typeof confirmedLsn === 'string') return confirmedLsn;
  throw new StreamRefusedError(
    `The replication slot ${slot} has disappeared: another process may have dropped it`,
  );
}

const duplicateObject = '42710';
const noRight = '42501';
const limitReached = '53400';

/** Another process may have created it in the meantime. */
async function creating(what: string, statement: string, create: () => Promise<unknown>): Promise<void> {
  try {
    await create();
  } catch (error) {
    const state = sqlStateOf(error);
    if (state === duplicateObject) return;
    const reason = error instanceof Error ? error.message : String(error);
    const remedy =
      state === noRight
        ? `give the role the attribute REPLICATION and ownership of the log, or let another role run: ${statement}`
        : state === limitReached
          ? 'increase max_replication_slots and restart the server'
          : `correct that, or run: ${statement}`;
    throw new StreamRefusedError(`The server refuses to create ${what} (${reason}): ${remedy}`, {
      cause: error,
    });
  }
}

async function findSlot(client: pg.Client, slot: string): Promise<SlotRow | undefined> {
  return (await client.query<SlotRow>(slotText, [slot])).rows[0];
}

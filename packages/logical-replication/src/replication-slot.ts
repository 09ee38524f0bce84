import type { RetainedLog } from '@framework/core/adapter';
import { retainedColumns } from '@framework/drizzle-adapter/log';
import { DatabaseError, escapeIdentifier, escapeLiteral } from 'pg';
import type pg from 'pg';

/** The publication and the replication slot of one handler in one database. */
export interface SlotSettings {
  readonly slot: string;
  readonly publication: string;
  /** Whether they are created when they are missing. */
  readonly create: boolean;
  /** Whether the server has refused to stream from the slot's position. */
  readonly isSlotOutdated?: boolean;
}

/** Thrown when the log cannot be streamed now; the message says why, and what to do. */
export class StreamRefusedError extends Error {
  override readonly name = 'StreamRefusedError';
  /** Whether another process streams instead, as it should be. */
  readonly isTaken: boolean;
  /** Whether no stream can begin at the slot's position any more. */
  readonly isSlotOutdated: boolean;

  constructor(
    message: string,
    options: { readonly isTaken?: boolean; readonly isSlotOutdated?: boolean; readonly cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.isTaken = options.isTaken ?? false;
    this.isSlotOutdated = options.isSlotOutdated ?? false;
  }
}

const serverText = `
  select current_setting('wal_level') as "walLevel", pg_is_in_recovery() as "isStandby",
    current_setting('synchronous_standby_names') like '%*%' as "awaitsAny"`;

/** A column list or a filter of rows would leave events out; PostgreSQL 14 has neither. */
const publicationText = `
  select p.pubinsert and p.pubviaroot and (p.puballtables or exists (
    select from pg_publication_rel r
    where r.prpubid = p.oid and r.prrelid = 'eventlog.events'::regclass
      and to_jsonb(r) ->> 'prqual' is null and to_jsonb(r) ->> 'prattrs' is null)) as complete
  from pg_publication p where p.pubname = $1`;

const slotText = `
  select s.database = current_database() and s.plugin = 'pgoutput' and not s.temporary as fits, s.wal_status as status,
    s.confirmed_flush_lsn::text as "confirmedLsn", ${retainedColumns}
  from pg_replication_slots s where s.slot_name = $1`;

const versionText = `select current_setting('server_version_num')::integer as version`;

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
 * Checks that the server can stream its log, and that a slot, if it exists, is free for that.
 *
 * @throws StreamRefusedError when that is not so
 */
export async function assertAvailable(client: pg.Client, slot: string): Promise<void> {
  await checkServer(client);
  const found = await findSlot(client, slot);
  if (found?.fits === false) {
    throw new StreamRefusedError(
      `The replication slot ${slot} belongs to another database, perhaps one that was renamed, or to another plugin: ` +
        'drop it if nothing uses it any more, or set another slot for this database',
    );
  }
  if (typeof found?.activePid === 'number') {
    throw new StreamRefusedError(
      `The replication slot ${slot} is used by the server's process ${found.activePid}`,
      { isTaken: true },
    );
  }
}

/**
 * Creates what is missing to stream from a slot that is available.
 *
 * @param onRecreated called with the reason when a slot had to be replaced
 * @returns the position that the slot has confirmed
 * @throws StreamRefusedError when that is refused, or not to be done
 */
export async function prepareSlot(
  client: pg.Client,
  settings: SlotSettings,
  onRecreated: (reason: string) => void,
): Promise<string> {
  const { slot } = settings;
  const hasCreated = await preparePublication(client, settings);
  const found = await findSlot(client, slot);
  if (found === undefined) return createSlot(client, settings);
  const isLost = found.status === 'lost' || found.confirmedLsn === null;
  // A slot is useless if it is older than its publication: PostgreSQL looks for that in the catalog of back then.
  const isOutdated = hasCreated || settings.isSlotOutdated === true;
  if (!isLost && !isOutdated) return found.confirmedLsn ?? '';
  const why = isLost
    ? `The server has invalidated the replication slot ${slot}, probably because of max_slot_wal_keep_size`
    : `The publication ${settings.publication} is newer than the replication slot ${slot}`;
  if (!settings.create) throw new StreamRefusedError(`${why}: drop the slot and create it again`);
  await client.query('select pg_drop_replication_slot($1)', [slot]);
  onRecreated(`${why}; the slot was created again, and the events in between are read by cursor`);
  return createSlot(client, settings);
}

/** What the server keeps for a slot; `undefined` when there is no such slot. */
export async function retainedBy(client: pg.Client, slot: string): Promise<RetainedLog | undefined> {
  const found = await findSlot(client, slot);
  if (found === undefined) return undefined;
  const { status, activePid, retainedBytes } = found;
  return { name: slot, retainedBytes, status: status ?? 'lost', activePid: activePid ?? undefined };
}

async function checkServer(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ walLevel: string; isStandby: boolean; awaitsAny: boolean }>(
    serverText,
  );
  const [{ walLevel, isStandby, awaitsAny }] = rows as [(typeof rows)[0]];
  if (isStandby)
    throw new StreamRefusedError('The server is a standby: its log is streamed once it is promoted');
  // Commits would wait for the stream to confirm them, and it confirms only what is visible.
  if (awaitsAny)
    throw new StreamRefusedError(
      'The server would take the stream for a synchronous standby, and no commit would end: write the names of the standbys, ' +
        'not *, in synchronous_standby_names',
    );
  if (walLevel !== 'logical')
    throw new StreamRefusedError(
      `The server has wal_level = ${walLevel}: set it to logical and restart the server, to stream its log`,
    );
}

/**
 * Checks that the log of a database can still be streamed, with all inserts.
 *
 * @throws StreamRefusedError when it cannot
 */
export async function assertStreamable(client: pg.Client, publication: string): Promise<void> {
  await checkServer(client);
  const state = await publicationState(client, publication);
  if (state !== 'complete') throw unpublished(publication, state);
}

/** @returns whether it was created */
async function preparePublication(
  client: pg.Client,
  { publication, create }: SlotSettings,
): Promise<boolean> {
  const state = await publicationState(client, publication);
  if (state === 'complete') return false;
  if (state === 'incomplete' || !create) throw unpublished(publication, state);
  const statement = publicationStatement(publication);
  await creating(`the publication ${publication}`, statement, () => client.query(statement));
  return true;
}

type PublicationState = 'complete' | 'incomplete' | 'missing';

async function publicationState(client: pg.Client, publication: string): Promise<PublicationState> {
  const { rows } = await client.query<{ complete: boolean }>(publicationText, [publication]);
  const [found] = rows;
  if (found === undefined) return 'missing';
  return found.complete ? 'complete' : 'incomplete';
}

function publicationStatement(publication: string): string {
  return (
    `create publication ${escapeIdentifier(publication)} for table eventlog.events ` +
    `with (publish = 'insert', publish_via_partition_root = true)`
  );
}

function unpublished(publication: string, state: Exclude<PublicationState, 'complete'>): StreamRefusedError {
  const statement = publicationStatement(publication);
  return new StreamRefusedError(
    state === 'missing'
      ? `There is no publication ${publication}: run: ${statement}`
      : `The publication ${publication} does not publish all inserts into the log: drop it, and run: ${statement}`,
  );
}

async function createSlot(client: pg.Client, { slot, create }: SlotSettings): Promise<string> {
  const { rows } = await client.query<{ version: number }>(versionText);
  const failover = (rows[0]?.version ?? 0) >= failoverVersion ? ', failover => true' : '';
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
    const state = error instanceof DatabaseError ? error.code : undefined;
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

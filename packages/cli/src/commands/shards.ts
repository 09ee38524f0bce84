import { notReadyError } from '@framework/drizzle-adapter/operation';
import type pg from 'pg';

import {
  type CommandGroup,
  configOption,
  fileOf,
  formatOf,
  jsonOption,
  outputOption,
  timeoutOption,
} from '../command-group.js';
import { onConnection } from '../connect.js';
import { exitCode } from '../exit-code.js';
import { type ListedDatabase, databasesOf, loadConfig } from '../loaded-config.js';
import { table } from '../terminal.js';

/** `framework shards`: lists the shards of the configuration, and the databases that hold them. */
export const shards: CommandGroup = (program, { environment, terminal, end }) => {
  program
    .command('shards')
    .description('list the shards with their databases; changes nothing')
    .addOption(configOption)
    .addOption(timeoutOption)
    .addOption(outputOption)
    .addOption(jsonOption)
    .action(async (options) => {
      const config = await loadConfig(fileOf(options), environment, terminal);
      const primaries = databasesOf(config).filter(({ isPrimary }) => isPrimary);
      const rows = (await Promise.all(primaries.map((each) => rowsOf(each, options.timeoutMs)))).flat();
      if (formatOf(options, terminal) === 'json') terminal.writeJson({ shards: rows });
      else terminal.write(table(head, rows.map(cellsOf)));
      end(rows.every(({ reachable }) => reachable) ? exitCode.fine : exitCode.failed);
    });
};

/** One shard of the configuration. What its database would have to say is null while that is down or not migrated. */
interface ShardRow {
  readonly shard: string;
  readonly name: string;
  readonly database: string;
  readonly reachable: boolean;
  /** Why it is not reachable, and what to do. */
  readonly reason: string | null;
  readonly serverVersion: string | null;
  /** Whether the database says that it holds the shard. */
  readonly held: boolean | null;
  readonly epoch: number | null;
  /** How many events the log of the whole database has, as the planner estimates. */
  readonly eventsEstimate: number | null;
  /** Since when it has held the shard; `always` if it had a log before it recorded that. */
  readonly adopted: string | null;
}

const head = ['shard', 'name', 'database', 'server', 'held', 'epoch', 'events', 'adopted'];

function cellsOf(row: ShardRow): readonly string[] {
  const { held, epoch, eventsEstimate, adopted } = row;
  const server = row.reachable ? (row.serverVersion ?? '') : `not reachable: ${row.reason}`;
  const cells = [held === null ? null : held ? 'yes' : 'NO', epoch, eventsEstimate, adopted];
  return [row.shard, row.name, row.database, server, ...cells.map((cell) => String(cell ?? '-'))];
}

interface LogRow {
  readonly version: string;
  readonly migrated: boolean;
}

/** Unanalysed partitions have -1 rows. */
const logText = `
  select (select max(epoch) from eventlog.epochs) as epoch,
    coalesce((select sum(greatest(c.reltuples, 0)) from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'eventlog.events'::regclass), 0)::double precision as events,
    array(select jsonb_build_object('shard', shard_group || '/' || shard_member,
      'adopted', case when adopted_date = '-infinity' then 'always'
        else to_char(adopted_date at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') end)
      from eventlog.shards where released_date is null) as adoptions`;

interface Log {
  readonly epoch: number | null;
  readonly events: number;
  readonly adoptions: readonly { readonly shard: string; readonly adopted: string }[];
}

async function rowsOf(
  { config, members, where }: ListedDatabase,
  timeoutMs: number,
): Promise<readonly ShardRow[]> {
  const shared = { database: where.split(' on ').at(-1) ?? where };
  const named = members.map(({ shard, name }) => ({ shard: `${shard.group}/${shard.member}`, name }));
  const unknown = { held: null, epoch: null, eventsEstimate: null, adopted: null };
  try {
    return await onConnection(config, timeoutMs, async (client) => {
      const { rows } = await client.query<LogRow>(
        `select current_setting('server_version') as version, to_regclass('eventlog.shards') is not null as migrated`,
      );
      const [{ version, migrated } = { version: '', migrated: false }] = rows;
      const server = { ...shared, reachable: true, reason: null, serverVersion: version };
      const log = migrated ? await logOf(client) : undefined;
      if (log === undefined) return named.map((each) => ({ ...each, ...server, ...unknown }));
      return named.map((each) => {
        const adoption = log.adoptions.find(({ shard }) => shard === each.shard);
        const own = { held: adoption !== undefined, adopted: adoption?.adopted ?? null };
        return { ...each, ...server, ...own, epoch: log.epoch, eventsEstimate: log.events };
      });
    });
  } catch (error) {
    const reason = notReadyError(error, config).message;
    return named.map((each) => ({
      ...each,
      ...shared,
      reachable: false,
      reason,
      serverVersion: null,
      ...unknown,
    }));
  }
}

async function logOf(client: pg.Client): Promise<Log | undefined> {
  return (await client.query<Log>(logText)).rows[0];
}

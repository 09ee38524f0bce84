import { type ShardIdentifier, UnknownShardError } from '@framework/core';
import {
  type ConfiguredDatabase,
  type ShardingConfig,
  configuredDatabases,
  primaryConfig,
} from '@framework/core/adapter';
import {
  type ShardRecord,
  databasePlace,
  inShortTransaction,
  inWritableDatabase,
  isDisconnected,
  lockingShards,
  parsePostgresAddress,
  readShards,
  recordAdopted,
  recordReleased,
  sqlStateOf,
} from '@framework/drizzle-adapter/operation';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

/**
 * How long a change may take, and how long a lock is kept for a process that may be gone. The process sends a statement
 * more often than that.
 */
const changeMaxMs = 600_000;
const lockKeptMs = 60_000;
/**
 * The server rolls a change back if it is not committed this soon after its last statement. That is much shorter than
 * the time in which a lock that was just checked could be lost.
 */
const commitMaxMs = 5_000;
const purpose = 'framework shards';
/** SQLSTATE of a lock that was not available in time. */
const lockNotAvailable = '55P03';

/** The databases' records of their shards before a change; `undefined` for a database without a record. */
export type ShardRecords = ReadonlyMap<ConfiguredDatabase, ShardRecord | undefined>;

/** Executes the changes that are planned for a database; everything it does is rolled back. */
export type DryRun = (client: pg.ClientBase, database: ConfiguredDatabase) => Promise<unknown>;

/** A connection that keeps a database's lock during a change. */
interface Keeper {
  readonly client: pg.ClientBase;
  /** Resolves when the lock is no longer kept. */
  readonly ended: Promise<unknown>;
}

/** A change of the shards that databases hold. Locks keep others from changing them at the same time. */
export class ShardOwnershipChange {
  readonly #databases: readonly ConfiguredDatabase[];
  readonly #records = new Map<ConfiguredDatabase, ShardRecord | undefined>();
  readonly #keepers: Keeper[] = [];
  readonly #done = Promise.withResolvers<void>();

  private constructor(databases: readonly ConfiguredDatabase[]) {
    // In a fixed order, so that two operators do not deadlock.
    this.#databases = databases.toSorted(byPlace);
  }

  /**
   * Locks the databases, makes a dry run of the planned changes, and then runs the work. Each database has a connection that keeps
   * its lock for all transactions of the work, even behind a pooler.
   *
   * @throws Error naming the database that cannot be reached, is not migrated, refuses the dry run, or is being changed
   * by another operator. Its cause says why. Nothing has been changed then
   */
  static async run<Result>(
    databases: readonly ConfiguredDatabase[],
    dryRun: DryRun,
    work: (change: ShardOwnershipChange) => Promise<Result>,
  ): Promise<Result> {
    const change = new ShardOwnershipChange(databases);
    try {
      for (const database of change.#databases) await change.#lock(database, dryRun);
      return await work(change);
    } finally {
      change.#done.resolve();
      await Promise.allSettled(change.#keepers.map(({ ended }) => ended));
    }
  }

  /** The databases' records before the change. */
  get records(): ShardRecords {
    return this.#records;
  }

  /** Assigns shards to a database. */
  async adopt(
    database: ConfiguredDatabase,
    shards: readonly ShardIdentifier[],
    { onlyFirst }: { readonly onlyFirst: boolean },
  ): Promise<void> {
    if (shards.length === 0) return;
    await inWritableDatabase(database.config, purpose, (client) =>
      this.#change(client, () => recordAdopted(client, shards, { onlyFirst })),
    );
  }

  /**
   * Takes shards away from a database. Ends its sessions if it has a record of one of them, even if the shard was
   * released before: that release may have failed before it ended the sessions.
   *
   * @returns the sessions that could not be ended
   */
  async release(
    database: ConfiguredDatabase,
    shards: readonly ShardIdentifier[],
  ): Promise<readonly string[]> {
    if (shards.length === 0) return [];
    return inWritableDatabase(database.config, purpose, async (client) => {
      const recorded = await this.#change(client, () => recordReleased(client, shards));
      return recorded.length > 0 ? endSessions(client, purpose) : [];
    });
  }

  /** Changes a database, unless a lock is lost before or during the change. */
  async #change<Result>(client: pg.Client, work: () => Promise<Result>): Promise<Result> {
    try {
      return await inShortTransaction(client, async () => {
        await client.query(`set local idle_in_transaction_session_timeout = ${commitMaxMs}`);
        const result = await work();
        await this.#assertKept();
        return result;
      });
    } catch (error) {
      // Its commit may still arrive at the server, so the locks must be kept until it cannot succeed any more.
      if (isDisconnected(client)) await delay(commitMaxMs);
      throw error;
    }
  }

  async #lock(database: ConfiguredDatabase, dryRun: DryRun): Promise<void> {
    const locked = Promise.withResolvers<pg.ClientBase>();
    const keep = inWritableDatabase(database.config, purpose, (client) =>
      lockingShards(client, async () => {
        // Overrides the role's settings: the lock is kept while the connection is idle, but not if its process is gone.
        await client.query(
          `select set_config(name, timeout, true) from pg_settings
           join (values ('idle_in_transaction_session_timeout', $1), ('transaction_timeout', $2)) as wanted (its_name, timeout)
             on name = its_name`,
          [String(lockKeptMs), String(changeMaxMs)],
        );
        this.#records.set(database, await readShards(client));
        await client.query('savepoint dry_run');
        await dryRun(client, database);
        await client.query('rollback to savepoint dry_run');
        locked.resolve(client);
        await this.#done.promise;
      }).catch((error: unknown) => {
        if (sqlStateOf(error) !== lockNotAvailable) throw error;
        throw new Error(
          'another operator is changing which shards it holds; nothing was changed, try again later',
          {
            cause: error,
          },
        );
      }),
    );
    const ended = keep.then(
      () => undefined,
      (error: unknown) => error,
    );
    void ended.then((error) => error !== undefined && locked.reject(error));
    this.#keepers.push({ client: await locked.promise, ended });
  }

  /**
   * A lock is lost with its connection, for example when the server restarts. Another operator may have changed something
   * since then.
   */
  async #assertKept(): Promise<void> {
    try {
      await Promise.all(this.#keepers.map(({ client }) => client.query('select')));
    } catch (error) {
      throw new Error(
        'the lock on a database was lost: shards that were released stay released; run the command again to continue',
        { cause: error },
      );
    }
  }
}

/**
 * The configuration's primary databases, which hold the shards.
 *
 * @throws UnknownShardError `unknown-shard` when one of the given shards is not configured
 */
export function primaryDatabases(
  sharding: ShardingConfig,
  shards: readonly ShardIdentifier[] = [],
): readonly ConfiguredDatabase[] {
  const databases = configuredDatabases(sharding, { parseAddress: parsePostgresAddress }).filter(
    ({ config }) => config.name === primaryConfig,
  );
  for (const shard of shards)
    if (!databases.some((database) => database.shards.includes(shard))) throw new UnknownShardError(shard);
  return databases;
}

function byPlace({ config: one }: ConfiguredDatabase, { config: other }: ConfiguredDatabase): number {
  return databasePlace(one.address) < databasePlace(other.address) ? -1 : 1;
}

const endedWithinMs = 5_000;
const pollMs = 100;
/** SQLSTATE of a missing permission. */
const permissionDenied = '42501';

interface Session {
  readonly pid: number;
  readonly usename: string;
  /** Null when the role may not see it. */
  readonly application: string | null;
}

/**
 * Ends the current sessions of a database, and waits until they have ended.
 *
 * @param own sessions whose application name starts with this are not ended
 * @returns the sessions that this role may not end, or that have not ended within 5 s, such as `wallet
 * (wallet-service), process 4711`
 */
async function endSessions(client: pg.ClientBase, own: string): Promise<readonly string[]> {
  const { rows } = await client.query<Session>(
    `select pid, usename, application_name as application from pg_stat_activity
     where datname = current_database() and usename is not null and coalesce(backend_type, 'client backend') = 'client backend'
       and not starts_with(coalesce(application_name, ''), $1)`,
    [own],
  );
  for (const { pid } of rows) await terminate(client, pid);
  const deadlineMs = performance.now() + endedWithinMs;
  let left = rows;
  for (;;) {
    const running = await runningOf(client, left);
    left = left.filter(({ pid }) => running.has(pid));
    if (left.length === 0 || performance.now() > deadlineMs) break;
    await delay(pollMs);
  }
  return left.map(
    ({ pid, usename, application }) => `${usename} (${application || 'unnamed'}), process ${pid}`,
  );
}

async function terminate(client: pg.ClientBase, pid: number): Promise<void> {
  try {
    await client.query('select pg_terminate_backend($1)', [pid]);
  } catch (error) {
    if (sqlStateOf(error) !== permissionDenied) throw error;
  }
}

async function runningOf(client: pg.ClientBase, sessions: readonly Session[]): Promise<ReadonlySet<number>> {
  const { rows } = await client.query<{ pid: number }>(
    'select pid from pg_stat_activity where pid = any($1)',
    [sessions.map(({ pid }) => pid)],
  );
  return new Set(rows.map(({ pid }) => pid));
}

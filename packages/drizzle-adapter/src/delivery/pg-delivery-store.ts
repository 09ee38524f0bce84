import { FrameworkError } from '@framework/core';
import type { DeliveryStore, LogPartitions, RetainedLog } from '@framework/core/adapter';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

import type { Connection } from '../connection/connection.js';
import type { PgTransactionManager } from '../pg-transaction-manager.js';
import { slotCount } from '../write/write-statement.js';
import { PgBlockedModels } from './pg-blocked-models.js';
import { PgDeadLetters } from './pg-dead-letters.js';
import { PgDeliveryLog } from './pg-delivery-log.js';
import { PgHandlerCursors } from './pg-handler-cursors.js';
import { type NotificationSettings, PgNotificationChannel } from './pg-notifications.js';
import { PgOperatorStore } from './pg-operator-store.js';
import { PgSlotLeases } from './pg-slot-leases.js';

/** Everything that delivery needs from one PostgreSQL database. */
export class PgDeliveryStore implements DeliveryStore {
  readonly slotCount: number = slotCount;
  readonly leases: PgSlotLeases;
  readonly cursors: PgHandlerCursors;
  readonly log: PgDeliveryLog;
  readonly blocked: PgBlockedModels;
  readonly deadLetters: PgDeadLetters;
  readonly notifications: PgNotificationChannel;
  readonly partitions: PgLogPartitions;
  readonly operator: PgOperatorStore;
  readonly #manager: PgTransactionManager;
  /** How to open further connections to the database, until it is closed. */
  readonly connections: NotificationSettings;

  /**
   * @param leases renews leases on a connection of its own, where no other statement delays them
   * @param notifications listens for notifications on a connection of its own
   */
  constructor(
    manager: PgTransactionManager,
    leases: PgTransactionManager,
    notifications: NotificationSettings,
  ) {
    this.#manager = manager;
    this.connections = notifications;
    this.leases = new PgSlotLeases(leases);
    this.cursors = new PgHandlerCursors(manager);
    this.log = new PgDeliveryLog(manager);
    this.blocked = new PgBlockedModels(manager);
    this.deadLetters = new PgDeadLetters(manager);
    this.notifications = new PgNotificationChannel(manager, notifications);
    this.partitions = new PgLogPartitions(manager);
    this.operator = new PgOperatorStore(manager);
  }

  async retainedLogs(): Promise<readonly RetainedLog[]> {
    const { rows } = await this.#manager.query<RetainedRow>({ text: retainedLogsText });
    return rows.map(({ activePid, ...found }) => ({ ...found, activePid: activePid ?? undefined }));
  }
}

/**
 * Returns how further connections to the database of a store are configured, as a function to be called for each connection;
 * `undefined` for a store of another adapter.
 */
export function clientConfigOf(store: DeliveryStore): (() => pg.ClientConfig) | undefined {
  return store instanceof PgDeliveryStore ? store.connections.client : undefined;
}

/**
 * The SQL columns `activePid` and `retainedBytes` of a replication slot `s`: the process that uses it, and how much write-ahead log it
 * retains.
 */
export const retainedColumns: string = `s.active_pid as "activePid",
  case when pg_is_in_recovery() then 0
    else coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0) end::double precision as "retainedBytes"`;

/** All replication slots of the database, including those of other programs. */
const retainedLogsText = `
  select s.slot_name::text as name, coalesce(s.wal_status, 'lost') as status, ${retainedColumns}
  from pg_replication_slots s where s.database = current_database() order by 1`;

interface RetainedRow extends Omit<RetainedLog, 'activePid'> {
  readonly activePid: number | null;
}

/** How many months ahead partitions are created. */
export const partitionMonthsAhead = 3;
/** How many calls of `eventlog.create_partitions` it takes at most: each releases its locks before the next one. */
export const partitionCallsMax = 3;

/** How many times in a row a change of partitions is tried. Each try waits up to 100 ms for a lock. */
const triesMax = 5;
const firstWaitMs = 200;
/** How long one step of creating partitions may take. Its locks do not block commits. */
const createTimeoutMs = 5_000;
/** How many rows of the default partition one statement deletes. */
const trimmedMax = 10_000;
/** How long dropping a partition may take, with a search for what waits in it. Only the locks behind that block commits. */
const dropTimeoutMs = 1_000;

/**
 * Creates and drops partitions of the log in one PostgreSQL database. Never delays a commit by more than a second. A role that
 * may drop none, such as that of a relay, leaves it to other processes.
 */
class PgLogPartitions implements LogPartitions {
  readonly #manager: Connection;

  constructor(manager: Connection) {
    this.#manager = manager;
  }

  async create(): Promise<void> {
    const create = `eventlog.create_partitions(${partitionMonthsAhead})`;
    for (let call = 1, more: unknown = true; more === true && call <= partitionCallsMax; call++)
      more = await this.#change(create, createTimeoutMs);
  }

  async drop(olderThanMs: number): Promise<readonly string[]> {
    const { rows } = await this.#manager.query<{ name: string }>({
      text: `select child.relname as name
             from pg_inherits join pg_class child on child.oid = inhrelid
             where inhparent = 'eventlog.events'::regclass and child.relname ~ '^events_\\d{4}_\\d{2}$'
               and (to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month') at time zone 'UTC'
                   < clock_timestamp() - $1::double precision * interval '1 millisecond'
               and has_function_privilege('eventlog.drop_partition(text)', 'execute')
             order by child.relname`,
      values: [olderThanMs],
    });
    const dropped: string[] = [];
    for (const { name } of rows) {
      // The name comes from the query above, and its pattern needs no quoting.
      const isDropped = await this.#change(`eventlog.drop_partition('${name}')`, dropTimeoutMs);
      if (isDropped === true) dropped.push(name);
    }
    await this.#trimDefault(olderThanMs);
    return dropped;
  }

  /** Deletes old rows of the default partition, in steps. It has rows only if a month had no partition when they were written. */
  async #trimDefault(olderThanMs: number): Promise<void> {
    const { rows } = await this.#manager.query<{ before: string | null }>({
      text: `select (clock_timestamp() - $1::double precision * interval '1 millisecond')::text as before
             where has_function_privilege('eventlog.trim_default_partition(timestamptz, integer)', 'execute')`,
      values: [olderThanMs],
    });
    const before = rows[0]?.before;
    if (typeof before !== 'string') return;
    const trim = `eventlog.trim_default_partition('${before}', ${trimmedMax})`;
    while ((await this.#change(trim, createTimeoutMs)) === trimmedMax);
  }

  /**
   * Changes the partitions if no lock is in the way: a statement that waits for such a lock would block all later ones.
   *
   * It is sent as one message, which makes it one transaction. If this process stops responding, its locks are still
   * released.
   *
   * @param call a function call without parameters
   */
  async #change(call: string, timeoutMs: number): Promise<unknown> {
    const text = `set local statement_timeout = ${timeoutMs}; select ${call} as changed`;
    for (let tryCount = 1; ; tryCount++) {
      try {
        return changedBy(await this.#manager.query({ text }));
      } catch (error) {
        if (tryCount === triesMax || !(FrameworkError.is(error) && error.retryable)) throw error;
        await delay(firstWaitMs * 2 ** (tryCount - 1));
      }
    }
  }
}

/** The result of the second statement. The types of `pg` do not show that there are several. */
function changedBy(results: unknown): unknown {
  const [, { rows }] = results as readonly [
    unknown,
    { readonly rows: readonly [{ readonly changed: unknown }] },
  ];
  return rows[0].changed;
}

import { type DatabaseRegistry, openDatabases, parseFrameworkConfig } from '@framework/core';
import { slotOf } from '@framework/core/adapter';
import { postgres } from '@framework/drizzle-adapter';
import { type LogicalReplicationOptions, logicalReplication } from '@framework/logical-replication';
import { EmbeddedPostgres, type EmbeddedPostgresOptions } from '@framework/embedded-postgres';
import { Delivery, type DeliveryOptions } from '@framework/events';
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished } from 'vitest';

import { type Relay, relay } from '../src/index.js';
import { ScriptedBroker } from './scripted-broker.js';

/** What a server needs to stream its log. */
export const streamingSettings = {
  fsync: 'off',
  wal_level: 'logical',
  max_replication_slots: '20',
  max_wal_senders: '20',
} as const;

/** The statement that ends the stream of a database. */
export const endStream =
  "select pg_terminate_backend(active_pid) from pg_replication_slots where database = current_database() and slot_name like 'framework%'";

/** A server for all tests of a file, whose log can be streamed. */
export function streamingServer(settings: EmbeddedPostgresOptions['settings'] = {}): () => EmbeddedPostgres {
  let server: EmbeddedPostgres | undefined;
  beforeAll(async () => {
    server = await EmbeddedPostgres.startTemporary({ settings: { ...streamingSettings, ...settings } });
  });
  afterAll(() => server?.stop());
  return () => {
    if (server === undefined) throw new Error('The server runs only during tests');
    return server;
  };
}

/** A session that writes events by hand, and asks the server what it has. */
export class LogWriter {
  readonly #client: pg.Client;

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  /** Connects; disconnects when the test is over. */
  static async connect(url: string): Promise<LogWriter> {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined);
    await client.connect();
    onTestFinished(() => client.end().catch(() => undefined));
    return new LogWriter(client);
  }

  async query<Row extends object>(text: string, values?: unknown[]): Promise<readonly Row[]> {
    return (await this.#client.query<Row>(text, values)).rows;
  }

  /** Writes one event for each version of a model, in the open transaction or each in its own. */
  async write(modelId: string, ...versions: readonly number[]): Promise<void> {
    for (const version of versions) await this.writeWith(modelId, version, { version });
  }

  async writeWith(modelId: string, version: number, payload: unknown): Promise<void> {
    await this.#client.query(
      `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, model_id,
         model_name, model_version, event_type, payload, headers, started_date, slot)
       values ($1, $2, 0, 'com.example', 'Write', '{"n": 1.50}', 'test', $3, 'Thing', $4, 'ThingChangedEvent', $5, '{}', now(), $6)`,
      [randomUUID(), randomUUID(), modelId, version, JSON.stringify(payload), slotOf(modelId, 16)],
    );
  }

  /** The replication slot of the relay. */
  async slot(): Promise<SlotRow | undefined> {
    const [row] = await this.query<SlotRow>(
      `select slot_name as name, active_pid as "activePid", confirmed_flush_lsn::text as "confirmedLsn", wal_status as status
       from pg_replication_slots where database = current_database() and slot_name like 'framework%'`,
    );
    return row;
  }

  /** Whether the slot has confirmed everything up to a position. */
  async hasConfirmed(lsn: string): Promise<boolean> {
    const [row] = await this.query<{ confirmed: boolean }>(
      `select confirmed_flush_lsn >= $1::pg_lsn as confirmed from pg_replication_slots
       where database = current_database() and slot_name like 'framework%'`,
      [lsn],
    );
    return row?.confirmed === true;
  }

  /** The end of the write-ahead log. */
  async lsn(): Promise<string> {
    const [row] = await this.query<{ lsn: string }>('select pg_current_wal_insert_lsn()::text as lsn');
    return row?.lsn ?? '';
  }
}

interface SlotRow {
  readonly name: string;
  readonly activePid: number | null;
  readonly confirmedLsn: string;
  readonly status: string;
}

/** An empty database on the server, migrated. */
export async function newLog(server: EmbeddedPostgres): Promise<string> {
  const name = `log_${randomUUID().replaceAll('-', '')}`;
  await server.ensureDatabase(name);
  const url = server.url(name);
  const databases = openLog(url);
  await databases.ready();
  return url;
}

/** The log of a database, which is created if it has none; closed when the test is over. */
export function openLog(url: string): DatabaseRegistry {
  const members = [{ member: 0, name: 'only', configs: { 'primary-config': { 'jdbc-url': url } } }];
  const sharding = {
    'default-shard': { group: 0, member: 0 },
    groups: [{ group: 0, name: 'things', members }],
  };
  const framework = parseFrameworkConfig({ framework: { namespace: 'com.example', sharding } });
  const databases = openDatabases(framework.sharding, postgres());
  onTestFinished(() => databases.close());
  return databases;
}

/** One process that relays the log of a database to a scripted broker. */
export interface RelayProcess {
  readonly broker: ScriptedBroker;
  readonly publisher: Relay;
  readonly databases: DatabaseRegistry;
  readonly errors: string[];
  /** Ends it as a stop of the process would. */
  stop(): Promise<void>;
}

/** Checks and saves often, so that tests wait little. */
export const quick: DeliveryOptions['settings'] = { pollMaxMs: 20, cursorSaveMs: 20, leaseMs: 5_000 };

/** Starts a relay process on a database; stops when the test is over. */
export async function startRelay(
  url: string,
  options: LogicalReplicationOptions = {},
  settings: DeliveryOptions['settings'] = {},
  broker: ScriptedBroker = new ScriptedBroker({ messagesMax: 1_000, timeoutMs: 30_000 }),
  name = 'to-broker',
): Promise<RelayProcess> {
  const databases = openLog(url);
  const source = logicalReplication(options);
  const publisher = relay({ name, broker, startFrom: 'beginning', source });
  const errors: string[] = [];
  const delivery = new Delivery({
    databases,
    executor: { execute: () => Promise.reject(new Error('unused')), onCommit: () => () => undefined },
    handlers: [publisher],
    settings,
    onError: (error) => errors.push(String(error)),
    onRecovered: () => undefined,
    onAttemptFailed: () => undefined,
  });
  delivery.start();
  await delivery.started();
  onTestFinished(() => delivery.stop({ timeoutMs: 2_000 }));
  return { broker, publisher, databases, errors, stop: () => delivery.stop({ timeoutMs: 2_000 }) };
}

/** Resolves when a process streams. */
export async function streams({ publisher }: RelayProcess): Promise<void> {
  await expect.poll(() => publisher.state.sources).toMatchObject([{ kind: 'streaming' }]);
}

/** Resolves when what is committed is read from the stream, in all slots. */
export async function isServed(process: RelayProcess, writer: LogWriter): Promise<void> {
  await streams(process);
  const models = Array.from({ length: 64 }, (_unused, index) => `warm-${index}`);
  for (let version = 1; version <= 2; version++) {
    for (const model of models) await writer.write(model, version);
    const count = version * models.length;
    // A repeat is no mistake.
    await expect.poll(() => new Set(process.broker.published.map(({ id }) => id)).size).toBe(count);
  }
}

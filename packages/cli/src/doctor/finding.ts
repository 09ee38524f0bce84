/** How bad a finding is: an `error` keeps something from working or loses data, a `warning` may, and a `note` only informs. */
export type Severity = 'error' | 'warning' | 'note';

/** What the doctor may find, in the order of its report: how bad it is, and what to do. docs/operations/command-line.md lists it. */
export const catalogue = {
  'configuration-invalid': [
    'error',
    'correct the value, as docs/reference/configuration.md describes the key',
  ],
  'unknown-key': ['error', 'correct the name of the key or remove it: the service refuses it'],
  'security-missing': [
    'error',
    'add framework.security.jwt: with NODE_ENV=production the service does not start without it',
  ],
  'token-keys-unreadable': [
    'error',
    'make jwks-file a JSON Web Key Set that the user of the service may read',
  ],
  'file-unreadable': ['error', 'correct the path, or let the user of the service read the file'],
  'connection-unencrypted': [
    'warning',
    'add the section ssl to the database, or sslmode=verify-full to its URL: passwords and data cross the network in plain text',
  ],
  'certificate-unverified': [
    'warning',
    'set ssl.mode to verify-full with the ca-file of the server: somebody in between can read and change everything',
  ],
  'acquisition-timeout': [
    'warning',
    'set acquisition-timeout-ms below http.limits.request-timeout-ms, so that a caller gets the reason before the time of a request is over',
  ],
  'lease-short': [
    'warning',
    'set delivery.lease-ms to at least statement-timeout-ms: one slow statement can take longer than the lease lasts',
  ],
  'handler-timeout': [
    'warning',
    'set delivery.timeout-ms above statement-timeout-ms + 1,000: a slow database would count as a failed attempt of the event',
  ],
  'database-unreachable': ['error', 'start the server, or correct jdbc-url'],
  'access-refused': ['error', 'correct username and password, or the privileges of the role'],
  'database-missing': ['error', 'create the database, or correct jdbc-url'],
  'tls-refused': ['error', "correct the server's certificate, or the section ssl of the database"],
  'standby-address': ['error', 'point jdbc-url of the primary-config at the primary, or promote this server'],
  'read-only': [
    'error',
    'turn default_transaction_read_only off for the server, the database and the role, or correct jdbc-url',
  ],
  'server-unsupported': ['error', 'upgrade the server to PostgreSQL 14 or newer'],
  'server-versions-mixed': ['warning', 'bring all servers to the same major version'],
  'same-database-twice': [
    'error',
    'give each shard its own database, or write the same address and user for all shards that share one: ready() refuses this',
  ],
  'shards-differ': [
    'error',
    'correct jdbc-url; or adopt the shard, if it was moved to this database (docs/guides/add-a-shard.md)',
  ],
  'migrations-pending': ['warning', 'run `framework migrate up`'],
  'migrations-newer': [
    'warning',
    'use the release that added them, or set migrate to off for as long as this release runs',
  ],
  'migrations-edited': [
    'error',
    'restore the file as it was applied, and make the change in a new migration: other databases got other statements',
  ],
  'privileges-missing': ['error', 'grant them, as docs/operations/database-roles.md describes'],
  superuser: [
    'warning',
    'connect as a role that is no superuser (docs/operations/database-roles.md): the database refuses nothing to this one',
  ],
  'connections-insufficient': [
    'error',
    'raise the limit, or lower maximum-pool-size: each process needs maximum-pool-size + 5 connections to a database',
  ],
  'fsync-off': ['error', 'set fsync to on: a crash of the machine can destroy the database'],
  'full-page-writes-off': ['error', 'set full_page_writes to on: a crash of the machine can destroy pages'],
  'synchronous-commit-off': [
    'error',
    'set synchronous_commit to on for the role and the database: a crash loses commits that were acknowledged',
  ],
  'statement-timeout': [
    'warning',
    'give the role and the configuration the same value: the service sets its own statement-timeout-ms, which overrides that of the role',
  ],
  'idle-in-transaction': [
    'note',
    "run: alter role … set idle_in_transaction_session_timeout = '10s'. The service sets its own, other programs do not",
  ],
  'wal-level': ['error', 'set wal_level to logical and restart the server, or remove source from the relay'],
  'replication-slots': [
    'error',
    'raise max_replication_slots and max_wal_senders, and restart the server: each streaming relay needs one of both per database',
  ],
  'replication-not-allowed': ['error', 'run: alter role … replication'],
  'standby-names-any': [
    'error',
    'write the names of the standbys, not *, in synchronous_standby_names: commits would wait for the stream of a relay',
  ],
  'standby-asynchronous': [
    'note',
    'set synchronous_standby_names, if a failover may lose no acknowledged commit',
  ],
  'standby-feedback-off': [
    'note',
    'set hot_standby_feedback to on on the standby, if its longer queries are cancelled',
  ],
  'pooler-refused': ['error', 'set what docs/operations/connections.md lists for PgBouncer'],
  'pooler-statement-mode': [
    'error',
    'set pool_mode to transaction or session: statement mode has no transactions',
  ],
  'pooler-settings': ['warning', 'set it for the role: the pooler does not pass it on'],
  encoding: ['error', 'create the database again with encoding UTF8: other texts cannot be stored'],
  'collation-version': [
    'warning',
    'reindex the database, then run: alter database … refresh collation version. Indexes of texts may be out of order',
  ],
  'time-zone': [
    'note',
    "run: alter database … set timezone = 'UTC', so that people read the times that the log has",
  ],
  'clock-skew': [
    'warning',
    'synchronise the clocks (NTP): dates of the log, waits and expiry of keys depend on them',
  ],
  'long-transaction': ['warning', 'end it: it keeps vacuum and delivery from passing it'],
  'slot-inactive': [
    'warning',
    'start its consumer, or drop the slot: the server keeps the write-ahead log and dead rows for it',
  ],
  'statistics-hidden': [
    'note',
    'grant pg_read_all_stats to the role, so that transactions of other roles can be seen',
  ],
  'partitions-missing': [
    'warning',
    'run `framework migrate up`, or let a role that may do it call eventlog.create_partitions: events go to the default partition',
  ],
  'default-partition-rows': [
    'warning',
    'move them to partitions of their months: retention never drops the default partition',
  ],
} as const satisfies Readonly<Record<string, readonly [Severity, string]>>;

/** The stable name of a finding. */
export type FindingName = keyof typeof catalogue;

/** One thing that is not as it should be. */
export interface Finding {
  readonly name: FindingName;
  readonly severity: Severity;
  /** A path of the configuration, or the shards and the place of a database. */
  readonly where: string;
  /** What was found. */
  readonly found: string;
  /** What to do. */
  readonly advice: string;
}

/** Makes a finding, with its severity and advice from the catalogue. */
export function finding(name: FindingName, where: string, found: string): Finding {
  const [severity, advice] = catalogue[name];
  return { name, severity, where, found, advice };
}

/** Whether a text is the name of a finding. */
export function isFindingName(name: string): name is FindingName {
  return Object.hasOwn(catalogue, name);
}

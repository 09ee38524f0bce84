import type { NotReadyKind } from '@framework/core/adapter';

/** Why a shard is not ready, as the readiness check reports it. */
export type ShardCause = NotReadyKind | 'opening' | 'delivery-starting';

/** The reason given for a shard that another process may know. */
export const notConfigured = 'not in the configuration of the process that was asked';

/**
 * What HTTP answers say about each cause: the problem, for clients, and the remedy, for operators. They contain no
 * host, user or server message; those are in the log.
 */
export const shardCauses: Readonly<Record<ShardCause, { readonly what: string; readonly remedy: string }>> = {
  unreachable: {
    what: 'its database server cannot be reached',
    remedy: 'start the server, or correct jdbc-url',
  },
  'not-serving': {
    what: 'its database server does not accept connections at the moment, or a lock is in the way',
    remedy:
      'wait for the server to start, or give it more connections; for a lock, the log says where to look',
  },
  'in-recovery': {
    what: 'its database server is in recovery',
    remedy: 'promote the server, or point jdbc-url at the primary',
  },
  'read-only': {
    what: 'its database server is read-only',
    remedy: 'turn default_transaction_read_only off, or point jdbc-url at the primary',
  },
  'access-refused': {
    what: 'its database refuses the login of the service',
    remedy: 'correct username and password, or the privileges of that user',
  },
  'database-missing': {
    what: 'its database does not exist',
    remedy: 'create the database, or correct jdbc-url',
  },
  'tls-refused': {
    what: 'the connection to its database cannot be encrypted as configured',
    remedy: "correct the server's certificate, or the section ssl or the ssl… parameters of jdbc-url",
  },
  'not-migrated': {
    what: 'its database lacks migrations, or is being restored',
    remedy:
      'apply the migrations with the command migrate of the service or, if the database is being restored, wait for the restore to finish; the log says which',
  },
  'migration-not-allowed': {
    what: 'its database lacks migrations, and the service may not apply them',
    remedy:
      'apply them with the command migrate of the service as the role that owns the schema, and set migrate to check',
  },
  'schema-newer': {
    what: 'its database has migrations of a newer release',
    remedy:
      'start that release, or set migrate to off to keep running this one; the log names the migrations',
  },
  'other-shards': {
    what: 'its database belongs to other shards',
    remedy:
      'correct jdbc-url; or, if the shard was moved there, use the command adopt of the service; the log names the shards',
  },
  'other-encoding': {
    what: 'its database is not encoded in UTF-8',
    remedy: 'create the database again with encoding UTF8, and restore its rows into it',
  },
  'migration-failed': {
    what: 'the migrations of its database fail',
    remedy: 'correct the migration, or the data on which it fails',
  },
  refused: { what: 'its database cannot be opened', remedy: 'see the log for the reason' },
  opening: { what: 'its database is being opened', remedy: 'wait' },
  'delivery-starting': {
    what: 'its handlers have no position in its log yet',
    remedy: 'wait; the log says if a database refuses a handler',
  },
};

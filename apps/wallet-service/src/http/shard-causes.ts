import type { NotReadyKind } from '@framework/core/adapter';

/** Why a shard cannot serve, as readiness answers it. */
export type ShardCause = NotReadyKind | 'opening' | 'delivery-starting';

/** What clients are told of a shard that another process may have. */
export const notConfigured = 'not in the configuration of the process that was asked';

/**
 * What is told over HTTP of each cause: what is wrong, for clients, and what to do, for operators. No host, no user, no
 * text of a server: those are in the log.
 */
export const shardCauses: Readonly<Record<ShardCause, { readonly what: string; readonly remedy: string }>> = {
  unreachable: {
    what: 'its database server cannot be reached',
    remedy: 'start the server, or correct jdbc-url',
  },
  'not-serving': {
    what: 'its database server takes no connections now, or somebody holds a lock',
    remedy:
      'wait until the server has started, or give it more connections; the log says of a lock where to look',
  },
  'in-recovery': {
    what: 'its database server does not lead',
    remedy: 'promote the server, or have jdbc-url lead to the one that leads',
  },
  'read-only': {
    what: 'its database server takes no writes',
    remedy: 'switch default_transaction_read_only off, or have jdbc-url lead to the server that leads',
  },
  'access-refused': {
    what: 'its database does not let the service in',
    remedy: 'correct username and password, or what the server grants to that user',
  },
  'database-missing': {
    what: 'its database does not exist',
    remedy: 'create the database, or correct jdbc-url',
  },
  'tls-refused': {
    what: 'the connection to its database cannot be encrypted as configured',
    remedy: "correct the server's certificate, or the parameters ssl… of jdbc-url",
  },
  'not-migrated': {
    what: 'its database lacks migrations, or is being restored',
    remedy:
      'apply the migrations with npm run migrate; or, if the database is being restored, wait until that has ended; the log says which',
  },
  'migration-not-allowed': {
    what: 'its database lacks migrations, which the service may not apply',
    remedy: 'apply them with npm run migrate as the role that owns the schema, and set migrate to check',
  },
  'schema-newer': {
    what: 'its database has migrations of a newer release',
    remedy: 'start that release, or set migrate to off to go on with this one; the log names them',
  },
  'other-shards': {
    what: 'its database is that of other shards',
    remedy:
      'correct jdbc-url; or, if the shard was moved there, adopt it with npm run adopt; the log names both',
  },
  'migration-failed': {
    what: 'the migrations of its database fail',
    remedy: 'correct the migration, or the data that it fails on',
  },
  refused: { what: 'its database refuses to be opened', remedy: 'correct what the log says' },
  opening: { what: 'its database is being opened', remedy: 'wait' },
  'delivery-starting': {
    what: 'its handlers have no places in its log yet',
    remedy: 'wait; the log says when a database refuses a handler',
  },
};

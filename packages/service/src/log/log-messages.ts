import type { PostgresWarning } from '@framework/drizzle-adapter';
import { requestLogMessages } from '@framework/http';
import { certificateLogMessages } from '@framework/http/security';

/**
 * The messages of all lines of the log. What differs from line to line is in fields, so that lines can be counted and looked for by
 * their messages. `docs/operations/logs.md` lists them all.
 */
export const logMessages = {
  ...requestLogMessages,

  deliveryError: 'delivery continues after an error',
  deliveryRecovered: 'delivery has recovered',
  handlerRefused: 'nothing is delivered from a database: it refuses a handler',
  leaseLost: 'leases of slots were lost',
  attemptFailed: 'a handler failed and will be retried',
  attemptsSucceed: 'a handler is no longer kept waiting',
  deadLetter: 'a handler failed for the last time: the event is a dead letter',
  handlersHang: 'handlers hang: this process stops delivering and exits',

  shardReady: 'a shard has become ready',
  metricsServed: 'metrics are served',
  operatorsServed: 'operators are served',
  operatorRefused: 'an operator was not answered',
  cannotStart: 'the service cannot start',
  auditEnd: 'the audit log ends here',
  auditFailed: 'the audit log cannot be written: writes are refused until it can',
  keysFailed: 'the keys of tokens cannot be read: check jwks-uri or jwks-file',
  ratesAlone: 'rates are counted by each process alone',
  ...certificateLogMessages,
} as const;

/** The messages about databases, by the kind of what is wrong with them. */
export const databaseMessages: Readonly<Record<PostgresWarning['kind'], string>> = {
  'connection-leak': 'a connection was not returned in time',
  'pooler-settings': 'a setting is missing behind a pooler',
  'new-epoch': 'an epoch of a log has begun',
  'not-ready': 'a database cannot be opened',
  'newer-schema': 'a database has migrations that this release does not know',
  'log-partitions': 'a log lacks a partition that it needs soon',
};

import type { MigrateMode } from '@framework/core/adapter';
import type { FrameworkConfig } from '@framework/core';

import type { ListedDatabase } from '../loaded-config.js';
import type { DatabaseFacts } from './database-facts.js';
import { type Finding, type FindingName, finding } from './finding.js';
import type { LogFacts } from './log-facts.js';

/** The oldest server that the framework runs on. */
const versionMin = 140_000;

/** What one database says. */
export function databaseFindings(
  database: ListedDatabase,
  facts: DatabaseFacts,
  config: FrameworkConfig,
): readonly Finding[] {
  const { where, isPrimary } = database;
  const say = (name: FindingName, found: string): Finding => finding(name, where, found);
  const isStandby = isPrimary && facts.isInRecovery;
  return [
    ...(isStandby ? [say('standby-address', 'the server is in recovery, so it is not the primary')] : []),
    ...(isPrimary && facts.isReadOnly && !isStandby
      ? [say('read-only', 'the server takes no writes: default_transaction_read_only is on')]
      : []),
    ...serverFindings(facts, say),
    ...durabilityFindings(facts, say),
    ...timeoutFindings(database, facts, say),
    ...poolerFindings(facts, say),
    ...(isPrimary ? streamFindings(config, facts, say) : []),
    ...standbyFindings(database, facts, say),
    ...vacuumFindings(facts, say),
    ...(isPrimary && facts.log !== undefined ? logFindings(database, facts.log, config.migrate, say) : []),
  ];
}

type Say = (name: FindingName, found: string) => Finding;

function serverFindings(facts: DatabaseFacts, say: Say): readonly Finding[] {
  const { version, versionText, encoding, collationVersion, installedCollationVersion, settings } = facts;
  const timeZone = settings.TimeZone ?? 'UTC';
  return [
    ...(version < versionMin ? [say('server-unsupported', `the server is PostgreSQL ${versionText}`)] : []),
    ...(encoding === 'UTF8' ? [] : [say('encoding', `the encoding of the database is ${encoding}`)]),
    ...(collationVersion !== null &&
    installedCollationVersion !== null &&
    collationVersion !== installedCollationVersion
      ? [
          say(
            'collation-version',
            `indexes were built with ${collationVersion}, installed is ${installedCollationVersion}`,
          ),
        ]
      : []),
    ...(/^(Etc\/)?(UTC|GMT|UCT|Zulu|Universal)$/i.test(timeZone)
      ? []
      : [say('time-zone', `the time zone of the role is ${timeZone}`)]),
    ...(facts.isSuperuser ? [say('superuser', `${facts.role} is a superuser`)] : []),
  ];
}

function durabilityFindings({ settings }: DatabaseFacts, say: Say): readonly Finding[] {
  return [
    ...(settings.fsync === 'off' ? [say('fsync-off', 'fsync is off')] : []),
    ...(settings.full_page_writes === 'off' ? [say('full-page-writes-off', 'full_page_writes is off')] : []),
    ...(settings.synchronous_commit === 'off'
      ? [say('synchronous-commit-off', 'synchronous_commit is off')]
      : []),
  ];
}

function timeoutFindings(
  { config: { statementTimeoutMs } }: ListedDatabase,
  { settings }: DatabaseFacts,
  say: Say,
): readonly Finding[] {
  const timeoutMs = Number(settings.statement_timeout ?? 0);
  const found = `statement_timeout of the role is ${timeoutMs}, statement-timeout-ms is ${statementTimeoutMs}`;
  return [
    ...(timeoutMs > 0 && timeoutMs !== statementTimeoutMs ? [say('statement-timeout', found)] : []),
    ...(Number(settings.idle_in_transaction_session_timeout ?? 0) === 0
      ? [say('idle-in-transaction', 'idle_in_transaction_session_timeout of the role is 0')]
      : []),
  ];
}

function poolerFindings(
  { refusesTransactions, refusal, obstacles }: DatabaseFacts,
  say: Say,
): readonly Finding[] {
  if (refusesTransactions)
    return [say('pooler-statement-mode', 'the pooler in front of the server refuses transactions')];
  return [
    ...(refusal === undefined ? [] : [say('pooler-refused', refusal)]),
    ...obstacles.map((obstacle) => say('pooler-settings', obstacle)),
  ];
}

/** How many relays of a configuration stream the log. */
export function streamCount({ relay }: FrameworkConfig): number {
  return relay.filter(({ source }) => source === 'logical-replication').length;
}

function streamFindings(
  config: FrameworkConfig,
  { settings, mayReplicate, role }: DatabaseFacts,
  say: Say,
): readonly Finding[] {
  if (streamCount(config) === 0) return [];
  return [
    ...(settings.wal_level === 'logical'
      ? []
      : [say('wal-level', `a relay streams the log, and wal_level is ${settings.wal_level ?? 'unknown'}`)]),
    ...(settings.synchronous_standby_names?.includes('*') === true
      ? [say('standby-names-any', `synchronous_standby_names is ${settings.synchronous_standby_names}`)]
      : []),
    ...(mayReplicate ? [] : [say('replication-not-allowed', `${role} lacks the attribute replication`)]),
  ];
}

/** A member's further database may be a standby, to which the primary fails over. */
function standbyFindings(
  { members, isPrimary }: ListedDatabase,
  facts: DatabaseFacts,
  say: Say,
): readonly Finding[] {
  const { settings } = facts;
  if (!isPrimary) {
    if (!facts.isInRecovery || settings.hot_standby_feedback !== 'off') return [];
    return [say('standby-feedback-off', 'hot_standby_feedback of the standby is off')];
  }
  const hasSecondary = members.some(({ databases }) => databases.has('secondaryConfig'));
  if (!hasSecondary || settings.synchronous_standby_names !== '') return [];
  return [say('standby-asynchronous', 'there is a secondary-config, and no commit waits for a standby')];
}

function vacuumFindings(
  { longTransactions, seesAllSessions, role }: DatabaseFacts,
  say: Say,
): readonly Finding[] {
  return [
    ...longTransactions.map((text) => say('long-transaction', text)),
    ...(seesAllSessions ? [] : [say('statistics-hidden', `${role} sees no transactions of other roles`)]),
  ];
}

function logFindings(
  { shards }: ListedDatabase,
  log: LogFacts,
  migrate: MigrateMode,
  say: Say,
): readonly Finding[] {
  const { schema, shards: record } = log;
  const findings: Finding[] = [];
  if (schema.pending.length > 0) {
    const names = schema.pending.map(({ name, owner }) => `${name} of the ${owner}`);
    const first =
      names.length > 3 ? `${names.slice(0, 3).join(', ')} and ${names.length - 3} more` : names.join(', ');
    findings.push(say('migrations-pending', `migrate is ${migrate}, and the database lacks ${first}`));
  }
  if (schema.unknown.length > 0)
    findings.push(say('migrations-newer', `this release does not know ${schema.unknown.join(', ')}`));
  if (schema.edited.length > 0)
    findings.push(say('migrations-edited', `applied with other statements: ${schema.edited.join(', ')}`));
  if (record !== undefined) {
    const missing = shards.filter((shard) => !record.owned.includes(shard));
    const held = record.owned.length === 0 ? 'no shard' : record.owned.join(' and ');
    if (missing.length > 0)
      findings.push(
        say(
          'shards-differ',
          `the database holds ${held}, and the configuration assigns ${missing.join(' and ')} to it`,
        ),
      );
  }
  if (log.missingPrivileges.length > 0)
    findings.push(say('privileges-missing', `the role lacks ${log.missingPrivileges.join(', ')}`));
  if (log.missingPartitions.length > 0)
    findings.push(say('partitions-missing', `the log lacks ${log.missingPartitions.join(', ')}`));
  if (log.hasDefaultRows)
    findings.push(say('default-partition-rows', 'eventlog.events_default has rows, or had some'));
  return findings;
}

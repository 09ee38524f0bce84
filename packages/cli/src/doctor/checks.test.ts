import { parseFrameworkConfig } from '@framework/core';
import { expect, test } from 'vitest';

import { type ListedDatabase, databasesOf } from '../loaded-config.js';
import { databaseFindings } from './database-checks.js';
import type { DatabaseFacts } from './database-facts.js';
import { fleetFindings } from './fleet-checks.js';

// What no server of the tests has: it would take an old one, a pooler, a standby or a wrong clock.

const database = (name: string): object => ({ 'jdbc-url': `postgres://127.0.0.1/${name}` });
const config = parseFrameworkConfig({
  framework: {
    namespace: 'a.b',
    sharding: {
      'default-shard': { group: 0, member: 0 },
      groups: [0, 1].map((group) => ({
        group,
        name: `group-${group}`,
        members: [
          {
            member: 0,
            name: `shard-${group}`,
            configs: { 'primary-config': database(`p${group}`), 'secondary-config': database(`s${group}`) },
          },
        ],
      })),
    },
    relay: [{ name: 'stream', source: 'logical-replication' }],
  },
});
const listed = databasesOf(config);
const primaries = listed.filter(({ isPrimary }) => isPrimary);
const [primary, other] = primaries as [ListedDatabase, ListedDatabase];
const standby = listed.find(({ isPrimary }) => !isPrimary)!;

/** A server and a role that are as they should be. */
const sound: DatabaseFacts = {
  version: 180_004,
  versionText: '18.4',
  isInRecovery: false,
  isReadOnly: false,
  encoding: 'UTF8',
  role: 'wallet',
  isSuperuser: false,
  mayReplicate: true,
  seesAllSessions: true,
  roleConnectionsMax: -1,
  databaseConnectionsMax: -1,
  collationVersion: '2.36',
  installedCollationVersion: '2.36',
  server: 'server',
  database: 'server 1',
  isPooled: false,
  refusesTransactions: false,
  refusal: undefined,
  obstacles: [],
  settings: {
    TimeZone: 'UTC',
    fsync: 'on',
    full_page_writes: 'on',
    hot_standby_feedback: 'on',
    idle_in_transaction_session_timeout: '10000',
    max_connections: '100',
    max_replication_slots: '10',
    max_wal_senders: '10',
    statement_timeout: '10000',
    superuser_reserved_connections: '3',
    synchronous_commit: 'on',
    synchronous_standby_names: 'standby_1',
    wal_level: 'logical',
  },
  clock: { aheadMs: 3, uncertainMs: 5 },
  log: undefined,
  longTransactions: [],
  slots: [],
};

const withSettings = (settings: DatabaseFacts['settings']): Partial<DatabaseFacts> => ({
  settings: { ...sound.settings, ...settings },
});

test('a sound server has no findings', () => {
  expect(databaseFindings(primary, sound, config)).toEqual([]);
  expect(databaseFindings(standby, { ...sound, isInRecovery: true }, config)).toEqual([]);
});

test.each([
  ['server-unsupported', primary, { version: 130_012, versionText: '13.12' }],
  ['standby-address', primary, { isInRecovery: true, isReadOnly: true }],
  ['collation-version', primary, { installedCollationVersion: '2.41' }],
  ['full-page-writes-off', primary, withSettings({ full_page_writes: 'off' })],
  ['fsync-off', primary, withSettings({ fsync: 'off' })],
  ['wal-level', primary, withSettings({ wal_level: 'replica' })],
  ['replication-not-allowed', primary, { mayReplicate: false }],
  ['standby-names-any', primary, withSettings({ synchronous_standby_names: 'any 1 (*)' })],
  ['standby-asynchronous', primary, withSettings({ synchronous_standby_names: '' })],
  ['standby-feedback-off', standby, { isInRecovery: true, ...withSettings({ hot_standby_feedback: 'off' }) }],
  ['pooler-statement-mode', primary, { isPooled: true, refusesTransactions: true }],
  ['pooler-refused', primary, { isPooled: true, refusal: 'run: alter role …' }],
  ['pooler-settings', primary, { isPooled: true, obstacles: ['run: alter role …'] }],
] satisfies readonly (readonly [string, ListedDatabase, Partial<DatabaseFacts>])[])(
  'a database alone can show %s',
  (name, place, facts) => {
    const findings = databaseFindings(place, { ...sound, ...facts }, config);
    expect(findings.map((each) => each.name)).toEqual([name]);
  },
);

/** The names of the findings about two primaries, of which the second differs from the first. */
function together(facts: Partial<DatabaseFacts>, processes = 1): readonly string[] {
  const seen = [
    { database: primary, facts: sound },
    { database: other, facts: { ...sound, database: 'server 2', ...facts } },
  ];
  return fleetFindings(seen, config, { processes, clockSkewMaxMs: 1_000 }).map(({ name }) => name);
}

test.each([
  [[], {}],
  [['server-versions-mixed'], { version: 170_002 }],
  [['same-database-twice'], { database: 'server 1' }],
  [['clock-skew', 'clock-skew'], { clock: { aheadMs: -2_000, uncertainMs: 10 } }],
  // Beyond the limit only if the answer took no time at all.
  [[], { clock: { aheadMs: 1_500, uncertainMs: 600 } }],
  [['clock-skew'], { clock: { aheadMs: 1_004, uncertainMs: 1 } }],
  [['slot-inactive'], { slots: [{ name: 'left', retainedBytes: 1 }] }],
  [['connections-insufficient'], { roleConnectionsMax: 14 }],
] satisfies readonly (readonly [string[], Partial<DatabaseFacts>])[])(
  'two databases show %j',
  (names, facts) => {
    expect(together(facts)).toEqual(names);
  },
);

test('the connections of all databases of one server count together', () => {
  // Each process needs 15 per database.
  expect(together({}, 3)).toEqual([]);
  expect(together({}, 4)).toEqual(['connections-insufficient']);
  expect(together({ server: 'another server' }, 4)).toEqual([]);
});

test('the limit of a role counts for all databases of its server, and for no superuser', () => {
  // Two databases need 15 each.
  expect(together({ roleConnectionsMax: 29 })).toEqual(['connections-insufficient']);
  expect(together({ roleConnectionsMax: 30 })).toEqual([]);
  expect(together({ roleConnectionsMax: 14, server: 'another server' })).toEqual([
    'connections-insufficient',
  ]);
  expect(together({ databaseConnectionsMax: 15 })).toEqual([]);
  expect(together({ roleConnectionsMax: 1, databaseConnectionsMax: 1, isSuperuser: true })).toEqual([]);
});

test('each streaming relay needs a slot in each database of a server', () => {
  const few = { ...sound, ...withSettings({ max_replication_slots: '1' }) };
  const seen = primaries.map((each, index) => ({
    database: each,
    facts: { ...few, database: `server ${index}` },
  }));
  const options = { processes: 1, clockSkewMaxMs: 1_000 };
  expect(fleetFindings(seen, config, options).map(({ name }) => name)).toEqual(['replication-slots']);
  expect(fleetFindings(seen.slice(0, 1), config, options)).toEqual([]);
});

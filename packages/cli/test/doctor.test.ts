import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';

import { type FindingName, catalogue } from '../src/doctor/finding.js';
import { runHere } from './fixtures/command-here.js';
import type { Ended } from './fixtures/command-line.js';
import { type Member, PlantedDatabases, type PlainRole, configText } from './fixtures/planted-databases.js';

/** What the servers of tests have, and nobody should: they save no data that anybody needs. */
const ofTestServers = 'fsync-off,full-page-writes-off';

let folder: string;
let databases: PlantedDatabases;
/** The role of the service, with settings as they should be. */
let plain: PlainRole;
/** A role that lacks what it needs. */
let limited: PlainRole;
/** A role that no server lets in, whether or not it demands passwords. */
let refused: PlainRole;
/** A migrated database, of which every other one is a copy. */
let template: string;

/** What each run of the command left. */
let migrated: Ended;
let healthy: Ended;
let planted: Ended;
let misspelt: Ended;
let unready: Ended;

beforeAll(async () => {
  [folder, databases] = await Promise.all([
    mkdtemp(join(tmpdir(), 'framework-doctor-')),
    PlantedDatabases.open(),
  ]);
  plain = await databases.createRole(`grant pg_read_all_stats to …; alter role … set synchronous_commit = on;
    alter role … set idle_in_transaction_session_timeout = '10s'; alter role … set timezone = 'UTC'`);
  limited = await databases.createRole('');
  refused = await databases.createRole('alter role … nologin');
  template = await databases.create(`owner ${plain.name}`);
  const file = await write('template.json', configText([memberOn(template, 0)]));
  migrated = await runHere(['migrate', 'up', '--config', file]);
  // While nobody is connected to the template.
  const copy = `template ${template} owner ${plain.name}`;
  const ascii = `template template0 encoding 'SQL_ASCII' locale_provider libc lc_collate 'C' lc_ctype 'C' owner ${plain.name}`;
  const names = {
    settings: await databases.create(copy),
    log: await databases.create(copy),
    ascii: await databases.create(ascii),
  };
  // The runs need nothing of each other.
  [healthy, planted, misspelt] = await Promise.all([
    runHere(['doctor', '--config', file, '--ignore', `${ofTestServers},slot-inactive`]),
    runPlanted(names),
    runMisspelt(),
  ]);
  unready = await runUnready();
});
afterAll(async () => {
  await Promise.all([rm(folder, { recursive: true }), databases.drop()]);
});

/** Writes a configuration, and returns its path. */
async function write(name: string, content: string): Promise<string> {
  const file = join(folder, name);
  await writeFile(file, content);
  return file;
}

function memberOn(database: string, group: number, name = `shard-${group}`, role = plain): Member {
  return { group, name, database: databases.section(database, role) };
}

/** Where a misconfiguration is planted: in a member that is down, in one of three databases, or for one of two other roles. */
type Place = 'down' | 'settings' | 'log' | 'ascii' | 'limited' | 'superuser';

/** A misconfiguration: its name is that of the finding. */
interface Plant {
  readonly name: FindingName;
  readonly on: Place;
  /** What the finding must say, and what it must advise. */
  readonly found: RegExp;
  readonly advice: RegExp;
  /** Statements for the database, where `…` is its name and `plain` the role; default: the place is the plant. */
  readonly statements?: string;
  /** Other keys of the member, whose server is down. */
  readonly keys?: Readonly<Record<string, unknown>>;
}

const down = 'jdbc:postgresql://127.0.0.1:1/down';

const plants: readonly Plant[] = [
  { name: 'database-unreachable', on: 'down', found: /ECONNREFUSED/, advice: /start the server/ },
  {
    name: 'connection-unencrypted',
    on: 'down',
    keys: { 'jdbc-url': 'jdbc:postgresql://db.invalid:1/away' },
    found: /db\.invalid use no TLS/,
    advice: /verify-full/,
  },
  {
    name: 'certificate-unverified',
    on: 'down',
    keys: { ssl: { mode: 'no-verify' } },
    found: /not verified/,
    advice: /ca-file/,
  },
  {
    name: 'acquisition-timeout',
    on: 'down',
    keys: { 'acquisition-timeout-ms': 60_000 },
    found: /is 60000, request-timeout-ms is 30000/,
    advice: /below/,
  },
  {
    name: 'lease-short',
    on: 'down',
    keys: { 'statement-timeout-ms': 12_000 },
    found: /lease-ms is 10000, statement-timeout-ms is 12000/,
    advice: /at least/,
  },
  {
    name: 'handler-timeout',
    on: 'down',
    keys: { 'statement-timeout-ms': 29_500 },
    found: /timeout-ms is 30000, statement-timeout-ms is 29500/,
    advice: /above/,
  },
  {
    name: 'file-unreadable',
    on: 'down',
    keys: { ssl: { 'ca-file': '/nowhere.pem' } },
    found: /nowhere\.pem cannot be read \(ENOENT\)/,
    advice: /path/,
  },
  {
    name: 'read-only',
    on: 'settings',
    statements: 'alter database … set default_transaction_read_only = on',
    found: /takes no writes/,
    advice: /default_transaction_read_only off/,
  },
  {
    name: 'synchronous-commit-off',
    on: 'settings',
    statements: 'alter role plain in database … set synchronous_commit = off',
    found: /is off/,
    advice: /set synchronous_commit to on/,
  },
  {
    name: 'statement-timeout',
    on: 'settings',
    statements: `alter role plain in database … set statement_timeout = '2s'`,
    found: /role is 2000, statement-timeout-ms is 10000/,
    advice: /same value/,
  },
  {
    name: 'idle-in-transaction',
    on: 'settings',
    statements: 'alter role plain in database … set idle_in_transaction_session_timeout = 0',
    found: /is 0/,
    advice: /alter role/,
  },
  {
    name: 'time-zone',
    on: 'settings',
    statements: `alter role plain in database … set timezone = 'Asia/Tokyo'`,
    found: /Asia\/Tokyo/,
    advice: /UTC/,
  },
  {
    name: 'connections-insufficient',
    on: 'settings',
    statements: 'alter database … connection limit 3',
    found: /6 connections, and the database has 3/,
    advice: /maximum-pool-size/,
  },
  {
    name: 'migrations-newer',
    on: 'log',
    statements: `insert into eventlog.migrations (hash, created_at) values ('later', 4102444800000)`,
    found: /2100-01-01/,
    advice: /release that added them/,
  },
  {
    name: 'migrations-edited',
    on: 'log',
    statements: `update eventlog.migrations set hash = 'edited' where id = 4`,
    found: /0003_leases of the framework/,
    advice: /new migration/,
  },
  {
    name: 'shards-differ',
    on: 'log',
    statements: 'update eventlog.shards set shard_group = 99',
    found: /holds shard \(99, 0\), and the configuration assigns/,
    advice: /adopt/,
  },
  {
    name: 'partitions-missing',
    on: 'log',
    statements: `do $$ begin execute 'drop table eventlog.events_' ||
      to_char(date_trunc('month', now() at time zone 'UTC') + interval '1 month', 'YYYY_MM'); end $$`,
    found: /lacks events_\d{4}_\d\d$/,
    advice: /create_partitions/,
  },
  {
    name: 'default-partition-rows',
    on: 'log',
    statements: `insert into eventlog.events (id, action_id, ordinal, namespace, action_name, action_params, principal, headers,
        started_date, created_date)
      values (gen_random_uuid(), gen_random_uuid(), 0, 'a', 'A', '{}', 'p', '{}', now(), '2099-01-01')`,
    found: /events_default/,
    advice: /move them/,
  },
  { name: 'long-transaction', on: 'log', found: /idle in transaction/, advice: /end it/ },
  { name: 'encoding', on: 'ascii', found: /SQL_ASCII/, advice: /UTF8/ },
  {
    name: 'migrations-pending',
    on: 'ascii',
    found: /migrate is on-start, and the database lacks 0000_log/,
    advice: /framework migrate up/,
  },
  {
    name: 'database-missing',
    on: 'down',
    keys: { missing: true },
    found: /does not exist/,
    advice: /create/,
  },
  {
    name: 'access-refused',
    on: 'down',
    keys: { refused: true },
    found: /not permitted to log in/,
    advice: /correct username/,
  },
  { name: 'tls-refused', on: 'down', keys: { encrypted: true }, found: /SSL/, advice: /section ssl/ },
  { name: 'superuser', on: 'superuser', found: /is a superuser/, advice: /no superuser/ },
  {
    name: 'standby-asynchronous',
    on: 'superuser',
    found: /secondary-config/,
    advice: /synchronous_standby_names/,
  },
  { name: 'privileges-missing', on: 'limited', found: /insert on eventlog\.events/, advice: /grant/ },
  { name: 'statistics-hidden', on: 'limited', found: /sees no transactions/, advice: /pg_read_all_stats/ },
];

/** The members that are down, each with one plant. */
function downMember({ name, keys = {} }: Plant, index: number): Member {
  const { missing, refused: isRefused, encrypted, ...others } = keys;
  const real = databases.section(template, plain);
  const url = String(real['jdbc-url']);
  const database =
    missing === true
      ? { ...real, 'jdbc-url': `${url}_missing` }
      : isRefused === true
        ? databases.section(template, refused)
        : encrypted === true
          ? { ...real, 'jdbc-url': `${url}?sslmode=verify-full` }
          : { 'jdbc-url': `${down}_${index}`, username: plain.name, ...others };
  return { group: 100 + index, name, database };
}

/** Plants everything, and runs the doctor once. */
async function runPlanted(names: Readonly<Record<'settings' | 'log' | 'ascii', string>>): Promise<Ended> {
  for (const { on, statements } of plants) {
    if (statements === undefined || !(on === 'settings' || on === 'log')) continue;
    const text = statements.replaceAll('…', names[on]).replaceAll('plain', plain.name);
    // A database that takes no writes would refuse its own further settings.
    await (on === 'log' ? databases.query(text, names.log) : databases.query(text));
  }
  await databases.query(`grant usage on schema eventlog to ${limited.name}`, template);
  await databases.createSlot();
  const { username, password } = databases.superuser;
  const asSuperuser = databases.section(template, { name: username, password });
  const members = [
    memberOn(names.settings, 1, 'settings'),
    memberOn(names.log, 2, 'log'),
    memberOn(names.ascii, 3, 'ascii'),
    { group: 4, name: 'superuser', database: asSuperuser, secondary: databases.section(template, plain) },
    memberOn(template, 5, 'limited', limited),
    ...plants.filter(({ on }) => on === 'down').map(downMember),
  ];
  const security = { jwt: { issuer: 'https://id.example', audience: 'a', 'jwks-file': '/nowhere.jwks' } };
  const relay = [{ name: 'stream', source: 'logical-replication', redis: { url: 'redis://127.0.0.1' } }];
  const file = await write('planted.json', configText(members, { security, relay }));
  const session = await databases.connect(names.log);
  try {
    await session.query('begin; select 1');
    return await runHere(['doctor', '--config', file, '--long-transaction-ms', '1', '--timeout-ms', '20000']);
  } finally {
    await session.end();
  }
}

async function runMisspelt(): Promise<Ended> {
  const { database, ...named } = memberOn(template, 0);
  const member = { ...named, database: { ...database, 'maximum-pool-size': 0, passwort: 'Tr0ub4dor' } };
  const file = await write('misspelt.json', configText([member], { sharing: {}, migrate: 'never' }));
  return runHere(['doctor', '--config', file]);
}

/** In production, without tokens, and with a clock that is ten minutes ahead. */
async function runUnready(): Promise<Ended> {
  const file = await write('unready.json', configText([memberOn(template, 0)]));
  const { now } = Date;
  const clock = vi.spyOn(Date, 'now').mockImplementation(() => now() + 600_000);
  const ended = await runHere(['doctor', '--config', file], { environment: { NODE_ENV: 'production' } });
  clock.mockRestore();
  return ended;
}

interface Found {
  readonly name: string;
  readonly where: string;
  readonly found: string;
  readonly advice: string;
}

interface Report {
  readonly databases: readonly { readonly where: string; readonly reachable: boolean }[];
  readonly findings: readonly Found[];
}

function reportOf({ stdout }: Ended): Report {
  return JSON.parse(stdout) as Report;
}

test('a service without a fault has no findings', () => {
  expect(migrated).toMatchObject({ code: 0 });
  expect(healthy).toMatchObject({ code: 0, stderr: '' });
  expect(reportOf(healthy)).toMatchObject({ databases: [{ reachable: true }], findings: [] });
});

test.each(plants)('the doctor finds $name', ({ name, on, found, advice }) => {
  expect(planted).toMatchObject({ code: 3, stderr: '' });
  const isThere = ({ where }: Found): boolean =>
    where.includes(` ${on === 'down' ? name : on} on `) || where.startsWith('framework.sharding.');
  const there = reportOf(planted).findings.filter((each) => each.name === name && isThere(each));
  expect(there).toContainEqual(
    expect.objectContaining({
      found: expect.stringMatching(found) as string,
      advice: expect.stringMatching(advice) as string,
    }),
  );
});

describe('what all shards have in common', () => {
  test.each([
    ['same-database-twice', /the same database/],
    ['slot-inactive', /cli_[0-9a-f]{12}/],
    ['token-keys-unreadable', /nowhere\.jwks cannot be read/],
    ['replication-not-allowed', /lacks the attribute replication/],
  ] satisfies readonly (readonly [FindingName, RegExp])[])('shows as %s', (name, found) => {
    const { findings } = reportOf(planted);
    expect(findings).toContainEqual(
      expect.objectContaining({
        name,
        found: expect.stringMatching(found) as string,
        advice: catalogue[name][1],
      }),
    );
  });

  test.each([
    ['fsync-off', 'fsync', 'off'],
    ['full-page-writes-off', 'full_page_writes', 'off'],
    ['wal-level', 'wal_level', 'replica'],
  ])('shows %s exactly if the server has it', async (name, setting, value) => {
    const [row] = await databases.query(`select current_setting('${setting}') as value`);
    const isFound = reportOf(planted).findings.some((each) => each.name === name);
    expect(isFound).toBe(row?.['value'] === value);
  });
});

test('a database that is down costs only its own part', () => {
  const { databases: examined } = reportOf(planted);
  const named = (isUp: boolean): readonly (string | undefined)[] =>
    examined
      .filter(({ reachable }) => reachable === isUp)
      .map(({ where }) => / (\S+) (\(.*\) )?on /.exec(where)?.[1]);
  expect(named(true)).toEqual(['settings', 'log', 'ascii', 'superuser', 'superuser', 'limited']);
  expect(named(false)).toEqual(plants.filter(({ on }) => on === 'down').map(({ name }) => name));
});

test('all faults of a configuration are listed by their paths', () => {
  expect(misspelt).toMatchObject({ code: 3 });
  const { findings } = reportOf(misspelt);
  const primary = 'framework.sharding.groups[0].members[0].configs.primary-config';
  expect(findings.map(({ name, where }) => `${name} ${where}`).toSorted()).toEqual([
    'configuration-invalid framework.migrate',
    `configuration-invalid ${primary}.maximum-pool-size`,
    `unknown-key ${primary}`,
    'unknown-key framework.sharing',
  ]);
  expect(misspelt.stdout).not.toContain('Tr0ub4dor');
});

test('a clock that is wrong here, and production without tokens, are found', () => {
  expect(unready).toMatchObject({ code: 3 });
  const { findings } = reportOf(unready);
  const names = findings.map(({ name }) => name);
  expect(names).toContain('security-missing');
  const skew = findings.find(({ name }) => name === 'clock-skew');
  expect(skew?.found).toMatch(/^its clock is (599|600)\d\d\d ms behind this machine$/);
});

test('no output shows a password', () => {
  // A superuser whose connections are trusted has none.
  const secrets = [plain, limited, refused, databases.superuser]
    .map(({ password }) => password)
    .filter(Boolean);
  for (const { stdout, stderr } of [healthy, planted, misspelt, unready])
    for (const secret of secrets) expect(`${stdout}${stderr}`).not.toContain(secret);
});

import { readFileSync } from 'node:fs';
import { Writable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { catalogue } from '../src/doctor/finding.js';
import { runProgram } from '../src/program.js';
import { Terminal } from '../src/terminal.js';
import { CommandLine, type Ended } from './fixtures/command-line.js';
import { PlantedDatabases, configText } from './fixtures/planted-databases.js';

const page = readFileSync(new URL('../../../docs/operations/command-line.md', import.meta.url), 'utf8');

let framework: CommandLine;
let databases: PlantedDatabases;
let config: string;
/** With the configuration of one empty database that is up, and of one whose server is down. */
let runs: Readonly<Record<'status' | 'plan' | 'dryRun' | 'up' | 'shards' | 'table' | 'planTable', Ended>>;

const commands = [
  ['', 'doctor', 'migrate', 'migrate status', 'migrate plan', 'migrate up', 'shards'],
  ['consumers', 'relays', 'pause', 'resume', 'retire'],
  ['dead-letters', 'dead-letters list', 'dead-letters show', 'dead-letters replay', 'dead-letters skip'],
  ['events', 'events tail', 'events search', 'events show', 'events export'],
  ['model', 'action', 'key', 'why', 'audit'],
  ['view', 'transfers', 'check', 'openapi', 'asyncapi', 'console'],
].flat();

beforeAll(async () => {
  [framework, databases] = await Promise.all([CommandLine.build(), PlantedDatabases.open()]);
  const role = await databases.createRole('');
  const empty = await databases.create(`owner ${role.name}`);
  const away = {
    'jdbc-url': `postgresql://somebody:canary-7@127.0.0.1:1/away`,
    username: 'u',
    password: 'canary-8',
  };
  const members = [
    { group: 0, name: 'up', database: databases.section(empty, role) },
    { group: 1, name: 'away', database: away },
  ];
  config = await framework.write('config.json', configText(members));
  const run = (command: string, environment = {}): Promise<Ended> =>
    framework.run([...command.split(' '), '--config', config], environment);
  const [status, plan, dryRun] = await Promise.all([
    run('migrate status'),
    run('migrate plan'),
    run('migrate up', { FRAMEWORK_CLI_DRY_RUN: '1' }),
  ]);
  const up = await run('migrate up');
  const [shards, table, planTable] = await Promise.all([
    framework.run(['shards'], { FRAMEWORK_CONFIG: config }),
    run('shards', { FRAMEWORK_CLI_OUTPUT: 'table' }),
    run('migrate plan --output table'),
  ]);
  runs = { status, plan, dryRun, up, shards, table, planTable };
});
afterAll(async () => {
  await Promise.all([framework.remove(), databases.drop()]);
});

function parsed({ stdout }: Ended): unknown {
  return JSON.parse(stdout);
}

/** Runs the command in this process. */
async function runHere(words: readonly string[]): Promise<Ended> {
  const written = { stdout: '', stderr: '' };
  const streamTo = (name: keyof typeof written): Writable =>
    new Writable({
      write: (chunk, _encoding, done) => {
        written[name] += String(chunk);
        done();
      },
    });
  const code = await runProgram(
    words,
    {},
    new Terminal({ stdout: streamTo('stdout'), stderr: streamTo('stderr') }),
  );
  return { code, ...written };
}

const refused = expect.stringContaining('ECONNREFUSED') as string;
const anyList = expect.any(Array) as unknown[];

test('the status of each database is shown, and of one that is down the reason', () => {
  expect(runs.status.code).toBe(1);
  expect(parsed(runs.status)).toMatchObject({
    databases: [
      { reason: null, pending: expect.arrayContaining(['0000_eventlog of the framework']) as unknown },
      { reason: refused, pending: null },
    ],
  });
});

test('a plan has the statements, and so has a dry run, which changes nothing', () => {
  const first = { name: '0000_eventlog', owner: 'framework', statements: anyList };
  const databasesOfPlan = [{ pending: expect.arrayContaining([first]) as unknown }, { reason: refused }];
  expect(parsed(runs.plan)).toMatchObject({ databases: databasesOfPlan });
  expect(runs.dryRun).toEqual(runs.plan);
  expect(parsed(runs.up)).toMatchObject({ databases: [{ applied: { length: 12 } }, {}] });
});

test('a migration goes past a database that is down, and reports the failure', () => {
  expect(runs.up.code).toBe(1);
  expect(parsed(runs.up)).toMatchObject({
    databases: [
      {
        applied: expect.arrayContaining(['0010_move_handler_keys of the framework']) as unknown,
        reason: null,
      },
      { applied: null, reason: refused },
    ],
  });
  expect(runs.planTable.stdout).toMatch(
    /^-- 0\/0 up on .*: nothing to apply\n-- 1\/0 away .*: not reachable: /,
  );
});

test('the shards are listed with what their databases say', () => {
  expect(runs.shards.code).toBe(1);
  expect(parsed(runs.shards)).toEqual({
    shards: [
      {
        shard: '0/0',
        name: 'up',
        database: expect.stringMatching(/:\d+\/cli_/) as string,
        reachable: true,
        reason: null,
        serverVersion: expect.stringMatching(/^\d+/) as string,
        held: true,
        epoch: 1,
        eventsEstimate: 0,
        adopted: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as string,
      },
      expect.objectContaining({ shard: '1/0', database: '127.0.0.1:1/away', reachable: false, held: null }),
    ],
  });
});

test('a table for people has a line for each shard', () => {
  const [head, up, away] = runs.table.stdout.split('\n');
  expect(head).toMatch(/^SHARD +NAME +DATABASE +SERVER +HELD +EPOCH +EVENTS +ADOPTED$/);
  expect(up).toMatch(/^0\/0 +up +\S+ +\d+\S*( .*)? +yes +1 +0 +\d{4}-/);
  expect(away).toMatch(/^1\/0 +away +127\.0\.0\.1:1\/away +not reachable: .*ECONNREFUSED/);
});

test('a process that is called wrongly ends with 2, and one that cannot read its configuration with 1', async () => {
  const [wrong, unread] = await Promise.all([
    framework.run(['heal']),
    framework.run(['shards', '--config', '/nowhere.yaml']),
  ]);
  expect(wrong).toMatchObject({ code: 2, stdout: '' });
  expect(unread).toEqual({
    code: 1,
    stdout: '',
    stderr: 'error: --config: /nowhere.yaml cannot be read (ENOENT)\n',
  });
});

test.each([
  [['heal'], /unknown command 'heal'/],
  [['shards'], /FRAMEWORK_CONFIG/],
  [['shards', '--confg', 'x'], /unknown option '--confg'/],
  [['doctor', '--ignore', 'clock-skwe', '--config', 'x'], /no finding clock-skwe/],
  [['doctor', '--processes', '0', '--config', 'x'], /whole number from 1/],
  [['migrate', 'up', '--output', 'xml', '--config', 'x'], /Allowed choices are table, json/],
])('%j is refused', async (words, text) => {
  expect(await runHere(words)).toEqual({
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(text) as string,
  });
});

test('each command has help, whose options and variables are documented', async () => {
  const helps = await Promise.all(
    commands.map((command) => runHere([...command.split(' ').filter(Boolean), '--help'])),
  );
  expect(helps.map(({ code }) => code)).toEqual(commands.map(() => 0));
  const documented = new Set(
    [...page.matchAll(/^\| `(--[a-z-]+)[^`]*` +\| `(\w+)`/gm)].map(
      ([, option, variable]) => `${option} ${variable}`,
    ),
  );
  const offered = helps.flatMap(({ stdout }) =>
    [...stdout.matchAll(/^ {2}(--[a-z-]+)([^]*?)(?=^ {2}-|^$)/gm)].map(([, option, text = '']) => {
      const [, variable] = /env:\s*(\w+)\)/.exec(text) ?? [];
      return `${option} ${variable}`;
    }),
  );
  expect([...new Set(offered)].toSorted()).toEqual([...documented].toSorted());
  const listed = helps.flatMap(({ stdout }) => [...stdout.matchAll(/^Usage: framework ([a-z -]*[a-z])/gm)]);
  expect(
    listed.flatMap(([, command = '']) => (page.includes(`\`framework ${command}`) ? [] : [command])),
  ).toEqual([]);
});

test('the page lists every finding of the doctor with its severity, in the order of the report', () => {
  const listed = [...page.matchAll(/^\| `([a-z-]+)` +\| (error|warning|note) +\|/gm)].map(
    ([, name, severity]) => [name, severity],
  );
  expect(listed).toEqual(Object.entries(catalogue).map(([name, [severity]]) => [name, severity]));
});

test('no command shows a password', () => {
  for (const { stdout, stderr } of Object.values(runs))
    expect(`${stdout}${stderr}`).not.toMatch(/canary|pw-/);
});

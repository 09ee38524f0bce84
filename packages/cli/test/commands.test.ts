import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { runHere } from './fixtures/command-here.js';
import type { Ended } from './fixtures/command-line.js';
import { PlantedDatabases, configText } from './fixtures/planted-databases.js';

let folder: string;
let databases: PlantedDatabases;
let config: string;
/** With the configuration of one empty database that is up, and of one whose server is down. */
let runs: Readonly<
  Record<'status' | 'plan' | 'dryRun' | 'up' | 'again' | 'shards' | 'table' | 'planTable', Ended>
>;

beforeAll(async () => {
  [folder, databases] = await Promise.all([
    mkdtemp(join(tmpdir(), 'framework-commands-')),
    PlantedDatabases.open(),
  ]);
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
  config = join(folder, 'config.json');
  await writeFile(config, configText(members));
  const inConfig = { FRAMEWORK_CONFIG: config };
  const status = await run('migrate status', inConfig);
  const plan = await run('migrate plan', inConfig);
  const dryRun = await run('migrate up', { ...inConfig, FRAMEWORK_CLI_DRY_RUN: '1' });
  const up = await run('migrate up', inConfig);
  const again = await run('migrate up', inConfig);
  const shards = await run(`shards --config ${config}`);
  const table = await run('shards', { ...inConfig, FRAMEWORK_CLI_OUTPUT: 'table' });
  const planTable = await run(`migrate plan --output table --config ${config}`);
  runs = { status, plan, dryRun, up, again, shards, table, planTable };
});
afterAll(async () => {
  await Promise.all([rm(folder, { recursive: true }), databases.drop()]);
});

/** Runs a command with these variables. Options are read from those of this process, so that one run comes after the other. */
async function run(command: string, environment: Readonly<Record<string, string>> = {}): Promise<Ended> {
  for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value);
  return runHere(command.split(' ')).finally(() => vi.unstubAllEnvs());
}

function parsed({ stdout }: Ended): unknown {
  return JSON.parse(stdout);
}

const refused = expect.stringContaining('ECONNREFUSED') as string;
const anyList = expect.any(Array) as unknown[];

test('the status of each database is shown, and of one that is down the reason', () => {
  expect(runs.status.code).toBe(1);
  expect(parsed(runs.status)).toMatchObject({
    databases: [
      { reason: null, pending: expect.arrayContaining(['0000_log of the framework']) as unknown },
      { reason: refused, pending: null },
    ],
  });
});

test('a plan has the statements, and so has a dry run, which changes nothing', () => {
  const first = { name: '0000_log', owner: 'framework', statements: anyList };
  const databasesOfPlan = [{ pending: expect.arrayContaining([first]) as unknown }, { reason: refused }];
  expect(parsed(runs.plan)).toMatchObject({ databases: databasesOfPlan });
  expect(runs.dryRun).toEqual(runs.plan);
  expect(parsed(runs.up)).toMatchObject({ databases: [{ applied: { length: 6 } }, {}] });
});

test('a migration goes past a database that is down, and reports the failure', () => {
  expect(runs.up.code).toBe(1);
  expect(parsed(runs.up)).toMatchObject({
    databases: [
      {
        applied: expect.arrayContaining(['0005_operations of the framework']) as unknown,
        reason: null,
      },
      { applied: null, reason: refused },
    ],
  });
  expect(runs.planTable.stdout).toMatch(
    /^-- 0\/0 up on .*: nothing to apply\n-- 1\/0 away .*: not reachable: /,
  );
});

test('a migration that is repeated applies nothing, and reports the failure again', () => {
  expect(runs.again.code).toBe(1);
  expect(parsed(runs.again)).toMatchObject({
    databases: [
      { applied: [], reason: null },
      { applied: null, reason: refused },
    ],
  });
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

test('no command shows a password', () => {
  for (const { stdout, stderr } of Object.values(runs))
    expect(`${stdout}${stderr}`).not.toMatch(/canary|pw-/);
});

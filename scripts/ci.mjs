import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';

import { Tally } from './tally.mjs';
import { root, tool } from './workspace.mjs';

// What CI runs: both commands of the README, its example in a consumer's hands, and the benchmarks against their recorded
// ratios, with one tally over them.
const tally = new Tally();
tally.add(await outcomeOf('npm', ['test']));
// The tests above use the newest PostgreSQL, which they bring along; a machine that has an older one tests that, too.
if (existsSync('/usr/lib/postgresql')) {
  const env = {
    TEST_DATABASE_URL: process.env.TEST_DATABASE_URL ?? 'postgres://postgres@127.0.0.1:5432/postgres',
  };
  tally.add(
    await outcomeOf(
      'npm',
      ['test', '--', '--project', 'drizzle-adapter', '--project', 'wallet-service'],
      env,
    ),
  );
}
tally.add(await outcomeOf(process.execPath, ['scripts/check-start.mjs']));
tally.add(
  await outcomeOf(tool('node'), ['--disable-warning=ExperimentalWarning', 'scripts/check-consumer.mjs']),
);
tally.add(await outcomeOf('npm', ['run', 'bench', '--', '--short']));
tally.close();

/** Runs the command, shows what it prints, and reads the tally that it ends with. */
async function outcomeOf(command, args, env = {}) {
  let output = '';
  const child = spawn(command, args, {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child.stdout.on('data', (chunk) => {
    process.stdout.write(chunk);
    output = (output + chunk).slice(-1_000);
  });
  const code = await new Promise((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('close', resolve);
  });
  const outcome = Tally.fromOutput(output) ?? new Tally();
  if (code !== 0 && outcome.failed === 0) {
    console.log(`✗ ${[command, ...args].join(' ')} ended with ${code}`);
    outcome.failed = 1;
  }
  return outcome;
}

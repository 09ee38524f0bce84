import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

import { Tally } from './tally.mjs';
import { root, tool } from './workspace.mjs';

const pgBouncer = '/usr/sbin/pgbouncer';

// What CI runs: both commands of the README, its example and the conformance suite in a consumer's hands, and the
// benchmarks against their recorded ratios, with one tally over them.
const tally = new Tally();
const hasDebianPostgres = existsSync('/usr/lib/postgresql');
if (hasDebianPostgres) tally.add(pgBouncerOutcome());
tally.add(await outcomeOf('npm', ['test']));
// The tests above use the newest PostgreSQL, which they bring along; a machine that has an older one tests that, too.
if (hasDebianPostgres) {
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
tally.add(await mutantsOutcome());
tally.close();

/** What is new here must be tested so well that most small mistakes in it would be noticed. */
async function mutantsOutcome() {
  const commit = commitBefore();
  if (commit === undefined) {
    const note = '~ No earlier commit is in this clone, so that no changed lines were mutated';
    const outcome = new Tally();
    outcome.add({ skipped: 1, notes: [note] });
    return outcome;
  }
  // What is asked of whole folders is 85: these are some lines only, by chance better or worse tested ones.
  const bounds = ['--lines', '50', '--without-databases', '--at-least', '60'];
  const outcome = await outcomeOf('npm', ['run', 'mutants', '--', '--changed', commit, ...bounds]);
  if (outcome.failed === 0) outcome.add({ passed: 1 });
  return outcome;
}

/** Where a branch has left the main one; on that, the newest commit which is a day older than the last. */
function commitBefore() {
  const [head, fork] = [git('rev-parse', 'HEAD'), git('merge-base', 'HEAD', 'origin/main')];
  if (fork !== undefined && fork !== head) return fork;
  const dayBefore = Number(git('log', '-1', '--format=%ct')) - 24 * 60 * 60;
  return git('rev-list', '-1', `--before=${dayBefore}`, 'HEAD');
}

function git(...args) {
  const { status, stdout } = spawnSync('git', args, { cwd: root, encoding: 'utf8' });
  return status === 0 && stdout.trim() !== '' ? stdout.trim() : undefined;
}

/** The adapter is tested behind PgBouncer where there is one; a machine of CI with Debian's PostgreSQL must have it. */
function pgBouncerOutcome() {
  const outcome = new Tally();
  if (existsSync(pgBouncer)) return outcome;
  if (process.getuid?.() === 0) {
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
    for (const parameters of [['update'], ['install', '-y', '--no-install-recommends', 'pgbouncer']])
      spawnSync('apt-get', parameters, { stdio: ['ignore', 'ignore', 'inherit'], env });
    if (existsSync(pgBouncer)) return outcome;
  }
  const note =
    '✗ PgBouncer is missing, so that nothing is tested behind it: run apt-get install pgbouncer as root';
  outcome.add({ failed: 1, notes: [note] });
  return outcome;
}

/** Runs the command, shows what it prints, and reads the tally that it ends with. */
async function outcomeOf(command, args, env = {}) {
  let output = '';
  const child = spawn(command, args, {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child.stdout.setEncoding('utf8').on('data', (chunk) => {
    process.stdout.write(chunk);
    output += chunk;
  });
  const code = await new Promise((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('close', resolve);
  });
  const outcome = Tally.fromOutput(output) ?? new Tally();
  if (code !== 0 && outcome.failed === 0) {
    const note = `✗ ${[command, ...args].join(' ')} ended with ${code}`;
    console.log(note);
    outcome.add({ failed: 1, notes: [note] });
  }
  return outcome;
}

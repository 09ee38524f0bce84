import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

import { build } from 'esbuild';

import { installIfNeeded } from './install.mjs';
import { run } from './run.mjs';
import { members, root, tool } from './workspace.mjs';

// What `npm run planted-bugs` runs: plants one bug after another in a copy of the last commit, and tells after how many seeds
// the simulation finds it. Arguments: names of bugs; without any, all of them.
const bugs = join(root, 'scripts/planted-bugs/bugs');
const seedsMax = Number(process.env.SIMULATION_SEEDS ?? 3_000);

const registers = 'packages/testing/test/simulation/registers-simulation.ts';
/** The simulations that a patch may name: where they are, and how they are made. */
const simulations = {
  actions: { file: registers, make: 'registersSimulation({ handles: false })' },
  deliveries: { file: registers, make: 'registersSimulation()' },
  losses: { file: registers, make: 'registersSimulation({ faults: withLosses })' },
  wallet: { file: 'apps/wallet-service/test/simulation/wallet-simulation.ts', make: 'walletSimulation()' },
};

const names = process.argv.slice(2);
const patches = readdirSync(bugs)
  .filter(
    (file) => file.endsWith('.patch') && (names.length === 0 || names.includes(basename(file, '.patch'))),
  )
  .map((file) => join(bugs, file));

if (!(await installIfNeeded())) process.exit(1);
const copy = join(mkdtempSync(join(tmpdir(), 'planted-bugs-')), 'copy');
try {
  await git(root, 'worktree', 'add', '--quiet', '--detach', copy, 'HEAD');
  linkDependencies();
  for (const patch of patches) await plant(patch);
} finally {
  await git(root, 'worktree', 'remove', '--force', copy).catch(() =>
    rmSync(copy, { recursive: true, force: true }),
  );
}

async function plant(patch) {
  const [, name] = /^Simulation: (\w+)$/m.exec(readFileSync(patch, 'utf8')) ?? [];
  const { code, output } = await planted(patch, () => runSeeds(simulations[name]));
  console.log(`${code === 0 ? '✓' : '✗'} ${basename(patch, '.patch')} (${name}): ${output.trim()}`);
  if (code !== 0) process.exitCode = 1;
}

/** Does some work while a bug is planted; code that has changed since must be planted anew. */
async function planted(patch, work) {
  const { code, output } = await run('git', ['-C', copy, 'apply', patch]);
  if (code !== 0) return { code, output };
  const result = await work();
  await git(copy, 'apply', '--reverse', patch);
  return result;
}

/** Runs seeds until one fails; ends with code 0 when one does. */
async function runSeeds({ file, make }) {
  const program = join(copy, 'program.mjs');
  const contents = `
    import * as simulations from ${JSON.stringify(join(copy, file))};
    const { registersSimulation, walletSimulation, withLosses } = simulations;
    const simulation = ${make};
    for (let seed = 1; seed <= ${seedsMax}; seed++) {
      const { violations } = await simulation.run(seed);
      if (violations.length === 0) continue;
      console.log('seed ' + seed + ': ' + violations[0]);
      process.exit(0);
    }
    console.log('not found by ${seedsMax} seeds');
    process.exit(1);`;
  await build({
    stdin: { contents, resolveDir: join(copy, file, '..'), loader: 'js' },
    outfile: program,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'es2022',
    conditions: ['@framework/source'],
    keepNames: true,
    logLevel: 'error',
    logOverride: { 'import-is-undefined': 'silent' },
  });
  return run(tool('node'), ['--unhandled-rejections=warn', program]);
}

/** The copy has the workspace's dependencies, and its own packages. */
function linkDependencies() {
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  for (const member of members) {
    const from = join(root, member, 'node_modules');
    cpSync(from, join(copy, member, 'node_modules'), { recursive: true, verbatimSymlinks: true });
  }
}

async function git(folder, ...args) {
  const { code, output } = await run('git', ['-C', folder, ...args]);
  if (code !== 0) throw new Error(`git ${args.join(' ')} failed: ${output}`);
}

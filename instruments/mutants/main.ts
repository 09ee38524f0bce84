import { execa } from 'execa';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';

import { explanations } from './explanations.ts';
import { type Report, printScores } from './scores.ts';

const root = join(import.meta.dirname, '../..');
const usage = `npm run mutants -- [--changed COMMIT [--lines N]] [--without-databases] [--at-least PERCENT] [PATH …]

Changes the sources, one small change at a time, and runs the tests that cover it. A change that no test notices survives:
either a test is missing, or the change makes no difference, which instruments/mutants/survivors.md then explains.
Fails if there is a survivor without an explanation.

  PATH                 a file or folder of sources
  --changed COMMIT     only lines of sources that are not in this commit
  --lines N            at most N of these, spread over the sources; all by default
  --without-databases  leaves out sources whose tests need a database
  --at-least PERCENT   fails only if the total score is lower`;

/** Sources with decisions, whose tests need no database. */
const mutable =
  /^(?:packages\/(?:core|events|drizzle-adapter|logical-replication)\/src|apps\/wallet-service\/src\/(?:notification|transfer|wallet)(?!.*-(?:repository|tables?)\.ts))\/.*(?<!\.test)\.ts$/;

/** Sources whose tests need a database. */
const adapter = 'packages/drizzle-adapter/';

/** The maximum number of adjacent lines in a sample. */
const partMax = 40;

const { values: options, positionals: paths } = parseArgs({
  allowPositionals: true,
  options: {
    changed: { type: 'string' },
    lines: { type: 'string' },
    'without-databases': { type: 'boolean', default: false },
    'at-least': { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

/** Lines of a source: the range as `file:first-last`. */
interface Lines {
  readonly range: string;
  readonly count: number;
}

async function main(): Promise<void> {
  const changed = someOf(await changedLines(options.changed), Number(options.lines ?? Infinity));
  const sources = [...(await sourcesIn(paths)), ...changed.map(({ range }) => range)];
  if (sources.length === 0) {
    console.log('There are no sources to mutate');
    return;
  }
  const folder = join(root, `.data/mutants/${process.pid}`);
  mkdirSync(folder, { recursive: true });
  try {
    const report = await mutate(sources, folder);
    if (report === undefined) {
      process.exitCode = 1;
      return;
    }
    const isWhole = options.changed === undefined;
    const { score, isClean } = printScores(report, explanations(), isWhole);
    const least = options['at-least'];
    if (least === undefined ? !isClean : score < Number(least)) process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The sources in these files and folders, relative to the workspace. */
async function sourcesIn(places: readonly string[]): Promise<readonly string[]> {
  if (places.length === 0) return [];
  const named = places.map((path) => relative(root, resolve(process.env['INIT_CWD'] ?? root, path)));
  const missing = named.filter((path) => !existsSync(join(root, path)));
  if (missing.length > 0) throw new Error(`There is no ${missing.join(', ')}`);
  const lines = await git(['ls-files', '--cached', '--others', '--exclude-standard', '--', ...named]);
  return lines.filter((file) => isChosen(file) && existsSync(join(root, file)));
}

function isChosen(file: string): boolean {
  return mutable.test(file) && !(options['without-databases'] && file.startsWith(adapter));
}

/** The lines of sources that changed since a commit. */
async function changedLines(commit: string | undefined): Promise<readonly Lines[]> {
  if (commit === undefined) return [];
  const ranges: Lines[] = [];
  let file = '';
  for (const line of await git([
    'diff',
    '--unified=0',
    '--no-ext-diff',
    '--src-prefix=a/',
    '--dst-prefix=b/',
    '--diff-filter=d',
    commit,
    '--',
  ])) {
    file = /^\+\+\+ b\/(.+)$/.exec(line)?.[1] ?? file;
    const [, first, count = '1'] = /^@@ -\S+ \+(\d+)(?:,(\d+))? @@/.exec(line) ?? [];
    if (first === undefined || count === '0' || !isChosen(file)) continue;
    ranges.push(...partsOf(file, Number(first), Number(count)));
  }
  return ranges;
}

/** Consecutive lines of a file, in ranges small enough to choose some of them. */
function partsOf(file: string, first: number, count: number): readonly Lines[] {
  const end = first + count;
  return Array.from({ length: Math.ceil(count / partMax) }, (_unused, index) => {
    const begin = first + index * partMax;
    const next = Math.min(begin + partMax, end);
    return { range: `${file}:${begin}-${next - 1}`, count: next - begin };
  });
}

/** A limited number of lines, spread over the sources; the same changes lead to the same lines. */
function someOf(ranges: readonly Lines[], linesMax: number): readonly Lines[] {
  const shuffled = ranges.toSorted((one, other) => (hashOf(one) < hashOf(other) ? -1 : 1));
  let left = linesMax;
  return shuffled.filter(({ count }) => count <= left && (left -= count) >= 0);
}

function hashOf({ range }: Lines): string {
  return createHash('sha256').update(range).digest('hex');
}

async function git(args: readonly string[]): Promise<readonly string[]> {
  const { stdout } = await execa('git', args, { cwd: root });
  return stdout.split('\n').filter(Boolean);
}

/** Stryker's report about these sources; `undefined` when it failed, which it has already reported. */
async function mutate(sources: readonly string[], folder: string): Promise<Report | undefined> {
  const reportFile = join(folder, 'report.json');
  const optionsFile = join(folder, 'options.json');
  const settings = {
    mutate: sources,
    testRunner: 'vitest',
    vitest: { configFile: 'instruments/mutants/vitest.config.ts' },
    plugins: ['@stryker-mutator/vitest-runner', './instruments/mutants/error-texts.mjs'],
    ignorers: ['error-texts'],
    // Stryker would read the root's tsconfig.json with an API that TypeScript 7 does not have.
    ignorePatterns: ['.data', '.turbo', 'dist', '/tsconfig.json'],
    symlinkNodeModules: false,
    buildCommand: 'node instruments/mutants/link-modules.mjs',
    // A mutant of code that runs when a module is loaded affects all tests: too many when only some lines are tested.
    ignoreStatic: options.lines !== undefined,
    tempDirName: relative(root, join(folder, 'copies')),
    reporters: ['progress-append-only', 'json'],
    jsonReporter: { fileName: relative(root, reportFile) },
    // A mutant that times out counts as killed, so tests need more time here than their suites give them.
    timeoutMS: 20_000,
    // First all tests are run once, one after the other; databases are slow at times.
    ...(sources.some((source) => source.startsWith(adapter)) && { dryRunTimeoutMinutes: 20 }),
    logLevel: 'warn',
  };
  writeFileSync(optionsFile, JSON.stringify(settings));
  // Each runner has its own server, so that no mutant leaves databases behind on a permanent one.
  const env = { MUTANTS_WORKSPACE: root, MUTANTS_SOURCES: sources.join(), TEST_DATABASE_URL: '' };
  const { failed } = await execa('stryker', ['run', relative(root, optionsFile)], {
    cwd: root,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
    reject: false,
  });
  return failed ? undefined : (JSON.parse(readFileSync(reportFile, 'utf8')) as Report);
}

if (options.help || (paths.length === 0 && options.changed === undefined)) console.log(usage);
else await main();

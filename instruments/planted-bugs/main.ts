import { build, type Plugin } from 'esbuild';
import { execa } from 'execa';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { parseArgs } from 'node:util';

const root = join(import.meta.dirname, '../..');
const bugsFolder = join(import.meta.dirname, 'bugs');
const entry = join(import.meta.dirname, 'run-seeds.ts');
/** The folder of this run alone. */
const cache = join(root, `node_modules/.cache/planted-bugs/${process.pid}`);
const page = join(import.meta.dirname, 'results.md');
const begin = '<!-- planted bugs -->';
const end = '<!-- end of planted bugs -->';
const violationMax = 160;

const { values: options, positionals: names } = parseArgs({
  allowPositionals: true,
  options: {
    /** Seeds of each simulation; the simulation of actions alone gets three times as many, as in the project's tests. */
    seeds: { type: 'string', default: '800' },
    /** The longest time for the seeds of one bug. */
    seconds: { type: 'string', default: '300' },
    'dry-run': { type: 'boolean', default: false },
  },
});

interface Bug {
  readonly name: string;
  readonly file: string;
  /** The sentence at the beginning of its patch. */
  readonly does: string;
  readonly patched: readonly string[];
}

/** The result of the search for a bug. */
interface Result {
  readonly simulation?: string;
  readonly seed?: number;
  readonly seedCount?: number;
  readonly violation?: string;
  /** Why the bug was not found. */
  readonly reason?: string;
  /** Whether the bug could not be searched for at all. */
  readonly isBroken?: boolean;
}

/** One line of the output of a process that runs seeds. */
type Message =
  | { readonly kind: 'seed'; readonly simulation: string; readonly seed: number }
  | { readonly kind: 'violated'; readonly violations: readonly string[] }
  | { readonly kind: 'passed' };

/** Plants each bug in a copy of the sources, and reports which simulation finds it, after how many seeds. */
async function main(): Promise<void> {
  const bugs = readBugs(names);
  mkdirSync(cache, { recursive: true });
  const sound = await bundle('sound');
  const found: (Bug & Result)[] = [];
  for (const bug of bugs) {
    const result = await search(bug, sound);
    found.push({ ...bug, ...result });
    console.log(`${bug.name}: ${textOf(result)}`);
  }
  const caught = found.filter(({ simulation }) => simulation !== undefined).length;
  console.log(`${caught} of ${found.length} planted bugs were found`);
  if (found.some(({ isBroken }) => isBroken)) process.exitCode = 1;
  else if (!options['dry-run']) await writeTable(found);
}

function readBugs(chosen: readonly string[]): readonly Bug[] {
  const all = bugNames();
  const unknown = chosen.filter((name) => !all.includes(name));
  if (unknown.length > 0) throw new Error(`There is no ${unknown.join(', ')} in ${bugsFolder}`);
  return (chosen.length === 0 ? all : chosen).map((name) => {
    const file = join(bugsFolder, `${name}.patch`);
    const patch = readFileSync(file, 'utf8');
    return { name, file, does: patch.slice(0, patch.indexOf('\n')), patched: patchedFiles(patch) };
  });
}

function bugNames(): readonly string[] {
  return readdirSync(bugsFolder)
    .filter((file) => file.endsWith('.patch'))
    .sort()
    .map((file) => basename(file, '.patch'));
}

function patchedFiles(patch: string): readonly string[] {
  return [...patch.matchAll(/^\+\+\+ b\/(.+)$/gm)].map(([, path = '']) => path);
}

/** Runs the simulations with a bug until one of them fails, then the failing seed once more without the bug. */
async function search(bug: Bug, sound: string): Promise<Result> {
  const copy = join(cache, bug.name);
  for (const path of bug.patched) {
    if (!existsSync(join(root, path))) return { isBroken: true, reason: `${path} no longer exists` };
    mkdirSync(dirname(join(copy, path)), { recursive: true });
    writeFileSync(join(copy, path), readFileSync(join(root, path)));
  }
  // Inside a repository, git resolves the paths of a patch only from the folder that is passed here.
  const directory = `--directory=${relative(root, copy)}`;
  const applied = await execa('git', ['apply', directory, bug.file], { cwd: root, reject: false });
  if (applied.failed) return { isBroken: true, reason: `the patch does not apply: ${applied.stderr}` };
  const planted = await bundle(bug.name, copy);
  const result = await runSeeds(planted, ['explore', options.seeds]);
  if (result.violation === undefined || result.simulation === undefined) return result;
  const again = await runSeeds(sound, ['one', result.simulation, String(result.seed)]);
  if (again.violation === undefined) return result;
  return {
    isBroken: true,
    reason: `${result.simulation}, seed ${result.seed}, fails without it: ${again.violation}`,
  };
}

/** Bundles the simulations and everything that they run into one file; uses files of the copy if it has them. */
async function bundle(name: string, copy?: string): Promise<string> {
  const outfile = join(cache, `${name}.mjs`);
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    sourcemap: 'inline',
    target: 'es2022',
    conditions: ['@framework/source'],
    // Names of classes are the names of models and actions in the log.
    keepNames: true,
    banner: {
      js: `import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);`,
    },
    logLevel: 'error',
    plugins: copy === undefined ? [] : [filesFrom(copy)],
  });
  return outfile;
}

function filesFrom(copy: string): Plugin {
  return {
    name: 'planted-bug',
    setup(bundler) {
      bundler.onLoad({ filter: /\.ts$/ }, ({ path }) => {
        const planted = join(copy, relative(root, path));
        if (!existsSync(planted)) return undefined;
        return { contents: readFileSync(planted, 'utf8'), loader: 'ts', resolveDir: dirname(path) };
      });
    },
  };
}

/** The output of a process that runs seeds, when it ended or took too long. */
async function runSeeds(file: string, args: readonly string[]): Promise<Result> {
  const timeoutMs = Number(options.seconds) * 1_000;
  const child = execa('node', ['--enable-source-maps', file, ...args], {
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    buffer: { stdout: false },
    reject: false,
  });
  let at: Pick<Result, 'simulation' | 'seed'> = {};
  let seedCount = 0;
  let startedMs = Date.now();
  let outcome: Message | undefined;
  for await (const line of child.iterable({ preserveNewlines: false })) {
    const message = JSON.parse(line) as Message;
    if (message.kind !== 'seed') {
      outcome = message;
      continue;
    }
    at = { simulation: message.simulation, seed: message.seed };
    seedCount++;
    startedMs = Date.now();
  }
  const { timedOut, stderr } = await child;
  if (outcome?.kind === 'violated')
    return { ...at, seedCount, violation: plain(outcome.violations[0] ?? '') };
  if (outcome?.kind === 'passed') return { seedCount, reason: 'not found' };
  // A seed takes milliseconds, or some seconds if its steps never end.
  const isStuck = Date.now() - startedMs > timeoutMs / 2;
  if (timedOut && !isStuck) return { seedCount, reason: `not found within ${options.seconds} seconds` };
  const what = timedOut ? 'the process does nothing else any more' : `the process ends: ${stderr.trim()}`;
  return { ...at, seedCount, violation: plain(what) };
}

/** The first violation, in one short line, without ids. */
function plain(violation: string): string {
  const [first = ''] = violation.split('; ');
  const line = first.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, '…').replaceAll(/\s+/g, ' ');
  return line.length > violationMax ? `${line.slice(0, violationMax)} …` : line;
}

function textOf({ simulation, seed, seedCount, violation, reason }: Result): string {
  if (simulation === undefined) return `${reason}${seedCount === undefined ? '' : `, ${seedCount} seeds`}`;
  return `found by ${simulation}, seed ${seed}, ${seedCount} seeds in all: ${violation}`;
}

function row(cells: readonly unknown[]): string {
  const escaped = cells.map((cell) => String(cell).replaceAll('|', '\\|').replaceAll('<', '&lt;'));
  return `| ${escaped.join(' | ')} |`;
}

/** Writes the results between the comments of the page; the rows of bugs that were not planted this time stay. */
async function writeTable(found: readonly (Bug & Result)[]): Promise<void> {
  const text = readFileSync(page, 'utf8');
  const [before, after] = [text.indexOf(begin), text.indexOf(end)];
  if (before === -1 || after === -1) throw new Error(`${page} has no ${begin} … ${end}`);
  const rows = new Map(
    [...text.slice(before, after).matchAll(/^\| `(.+?)` .*$/gm)].map(([line, name]) => [name, line]),
  );
  for (const { name, does, simulation, seedCount, violation, reason } of found)
    rows.set(name, row([`\`${name}\``, does, simulation ?? 'none', seedCount, violation ?? reason]));
  const table = [
    row(['Bug', 'What it does', 'Found by', 'Seeds', 'Violation']),
    row(['---', '---', '---', '---', '---']),
    ...bugNames().flatMap((name) => rows.get(name) ?? []),
  ];
  const parts = [text.slice(0, before + begin.length), table.join('\n'), text.slice(after)];
  writeFileSync(page, parts.join('\n\n'));
  await execa('prettier', ['--write', page], { cwd: root });
}

try {
  await main();
} finally {
  rmSync(cache, { recursive: true, force: true });
}

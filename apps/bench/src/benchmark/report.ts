import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { findPackageJSON } from 'node:module';
import { cpus, totalmem } from 'node:os';
import { type Figure, isReached } from './benchmark.js';

const libraries = ['pg', 'drizzle-orm', 'graphile-worker', 'undici'] as const;

/** Where the figures were measured, and with which versions. */
export interface Environment {
  readonly date: string;
  readonly commit: string;
  readonly cpu: string;
  readonly cpuCount: number;
  readonly memoryGiB: number;
  readonly node: string;
  readonly postgres: string;
  /** The version of each library involved, by its name. */
  readonly libraries: Readonly<Record<string, string>>;
}

/** Describes this machine and this checkout. */
export function environmentOf(postgres: string): Environment {
  return {
    date: new Date().toISOString(),
    commit: commitIn(process.cwd()),
    cpu: cpus()[0]?.model ?? 'unknown',
    cpuCount: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    postgres,
    libraries: versionsOf(libraries),
  };
}

/**
 * The commit of a checkout, with `-dirty` if files differ from those of the commit. The recorded ratios do not count: they are
 * recorded one part after another.
 */
export function commitIn(folder: string): string {
  const git = (...args: readonly string[]): string =>
    execFileSync('git', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    const commit = git('describe', '--always', '--abbrev=12');
    const others = ['--', ':(top)', ':(top,exclude)apps/bench/recorded.json'];
    return git('status', '--porcelain', '--untracked-files=no', ...others) === ''
      ? commit
      : `${commit}-dirty`;
  } catch {
    return 'unknown';
  }
}

/** States in one line where the figures come from. */
export function headingOf({ libraries: versions, ...environment }: Environment): string {
  const { date, commit: of, cpu, cpuCount, memoryGiB, node, postgres } = environment;
  const others = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `${date}, commit ${of}, ${cpuCount} × ${cpu}, ${memoryGiB} GiB, Node ${node}, PostgreSQL ${postgres}, ${others.join(', ')}`;
}

/** The figures as a table, each with its bound and whether the bound is met. */
export function tableOf(figures: readonly Figure[]): string {
  const lines = figures.map((figure) => [
    isReached(figure) ? '✓' : '✗',
    figure.title,
    `${format(figure.value)} ${figure.unit}`,
    boundOf(figure),
    Object.entries(figure.measured)
      .map(([name, value]) => `${name} ${format(value)}`)
      .join(', '),
  ]);
  const rows = [['', 'figure', 'value', 'bound', 'measured'], ...lines];
  const widths = [0, 1, 2, 3].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')).join('\n');
}

function boundOf({ atLeast, atMost }: Figure): string {
  if (atLeast !== undefined) return `≥ ${format(atLeast)}`;
  return atMost === undefined ? '' : `≤ ${format(atMost)}`;
}

function format(value: number): string {
  if (Math.abs(value) >= 1_000) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(4)));
}

function versionsOf(names: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    names.map((name) => {
      const file = findPackageJSON(name, import.meta.url);
      if (file === undefined) throw new Error(`${name} is not installed`);
      return [name, (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version];
    }),
  );
}

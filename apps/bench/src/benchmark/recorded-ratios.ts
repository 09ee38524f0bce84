import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Figure } from './benchmark.js';
import { median } from './measure-contenders.js';
import type { Environment } from './report.js';

/** The recorded ratios, next to `dist`, which contains this file. */
const file = fileURLToPath(new URL('../recorded.json', import.meta.url));

/** The ratios of an earlier run of the short form, by the figures' titles. */
export type Ratios = Readonly<Record<string, number>>;

interface RecordedRatios {
  readonly environment: Environment;
  readonly ratios: Ratios;
}

/** Whether a figure is a ratio that should be large or small; such ratios are about the same on every machine. */
export function isRatio({ unit, atLeast, atMost }: Figure): boolean {
  return (unit === '×' || unit === '%') && (atLeast ?? atMost) !== undefined;
}

/**
 * Refuses to record what nobody could measure again.
 *
 * @throws Error when files differ from those of the commit
 */
export function checkRecordable(commit: string): void {
  if (commit.endsWith('-dirty'))
    throw new Error(
      `--record needs the files of a commit, these are ${commit}: commit them, then record again`,
    );
}

/** The figures of several runs as one list, each with the median of its values. */
export function medianFigures(runs: readonly (readonly Figure[])[]): readonly Figure[] {
  const [first = []] = runs;
  return first.map((figure) => {
    const all = runs.flatMap((figures) => figures.filter(({ title }) => title === figure.title));
    const medianOf = (value: (one: Figure) => number | undefined): number =>
      median(all.map((one) => value(one) ?? Number.NaN));
    const names = Object.keys(figure.measured);
    return {
      ...figure,
      value: medianOf(({ value }) => value),
      measured: Object.fromEntries(names.map((name) => [name, medianOf(({ measured }) => measured[name])])),
    };
  });
}

/**
 * Records the ratios for later runs.
 *
 * @param isWhole whether these are all ratios; if not, recorded ratios that were not measured now are kept
 */
export async function recordRatios(
  figures: readonly Figure[],
  environment: Environment,
  isWhole: boolean,
): Promise<void> {
  const before = isWhole ? undefined : await readRecorded();
  const now = figures.filter(isRatio).map(({ title, value }) => [title, Number(value.toPrecision(4))]);
  const ratios = { ...before?.ratios, ...Object.fromEntries(now) };
  await writeFile(file, `${JSON.stringify({ environment, ratios }, undefined, 2)}\n`);
}

/** The recorded ratios; none before the first time. */
export async function recordedRatios(): Promise<Ratios> {
  return (await readRecorded())?.ratios ?? {};
}

async function readRecorded(): Promise<RecordedRatios | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as RecordedRatios;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Figure } from './figure.js';
import type { Environment } from './report.js';

/** Beside `dist`, in which this file is. */
const file = fileURLToPath(new URL('../recorded.json', import.meta.url));
const toleratedShare = 0.8;

/** The ratios of an earlier run of the short form, by the figures' titles. */
interface RecordedRatios {
  readonly environment: Environment;
  readonly ratios: Readonly<Record<string, number>>;
}

/** Whether a figure is a ratio with a direction: the same on any machine, more or less. */
export function isRatio({ unit, atLeast, atMost }: Figure): boolean {
  return (unit === '×' || unit === '%') && (atLeast ?? atMost) !== undefined;
}

/** Writes the ratios down for later runs, besides those that were written before and not measured now. */
export async function recordRatios(figures: readonly Figure[], environment: Environment): Promise<void> {
  const before = await readRecorded();
  const now = figures.filter(isRatio).map(({ title, value }) => [title, Number(value.toPrecision(4))]);
  const ratios = { ...before?.ratios, ...Object.fromEntries(now) };
  await writeFile(file, `${JSON.stringify({ environment, ratios }, undefined, 2)}\n`);
}

/** The ratios that were recorded, by the figures' titles; none before the first time. */
export async function recordedRatios(): Promise<RecordedRatios['ratios']> {
  return (await readRecorded())?.ratios ?? {};
}

/** Says of each ratio that is more than 20 % worse than the recorded one, or was never recorded, what is wrong. */
export function fallenRatios(
  figures: readonly Figure[],
  ratios: RecordedRatios['ratios'],
): readonly string[] {
  return figures.filter(isRatio).flatMap(({ title, value, atLeast }) => {
    const recorded = ratios[title];
    if (recorded === undefined) return [`${title}: was never recorded; do it by --record`];
    const isGood =
      atLeast === undefined ? value <= recorded / toleratedShare : value >= recorded * toleratedShare;
    return isGood ? [] : [`${title}: ${value.toPrecision(4)}, recorded ${recorded}`];
  });
}

async function readRecorded(): Promise<RecordedRatios | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as RecordedRatios;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

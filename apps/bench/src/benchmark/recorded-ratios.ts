import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Figure } from './figure.js';
import type { Environment } from './report.js';

/** Beside `dist`, in which this file is. */
const file = fileURLToPath(new URL('../recorded.json', import.meta.url));

/** The ratios of an earlier run of the short form, by the figures' titles. */
export type Ratios = Readonly<Record<string, number>>;

interface RecordedRatios {
  readonly environment: Environment;
  readonly ratios: Ratios;
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

/** The ratios that were recorded; none before the first time. */
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

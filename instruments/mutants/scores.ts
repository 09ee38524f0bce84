import { dirname } from 'node:path';

import { type Change } from './explanations.ts';

interface Position {
  readonly line: number;
  readonly column: number;
}

interface Mutant {
  readonly status: string;
  readonly static?: boolean;
  readonly testsCompleted?: number;
  readonly replacement?: string;
  readonly location: { readonly start: Position; readonly end: Position };
}

type Judged = Mutant & Change & { readonly isExplained: boolean };

/** The part of Stryker's report that is read here. */
export interface Report {
  readonly files: Readonly<Record<string, { readonly source: string; readonly mutants: readonly Mutant[] }>>;
  readonly config?: { readonly ignoreStatic?: boolean };
}

/**
 * Prints the results of the mutants in a report, folder by folder, and the survivors without an explanation.
 *
 * Returns the total score, which is NaN if there are no mutants, and whether it `isClean`: without such survivors, and without
 * unneeded explanations.
 */
export function printScores(
  { files, config }: Report,
  explanations: readonly Change[],
  isWhole: boolean,
): { readonly score: number; readonly isClean: boolean } {
  const explained = new Set(explanations.map(keyOf));
  // If static mutants are ignored, one that is also covered by tests was not active when its module was loaded: its survival
  // means nothing.
  const isMeasured = (mutant: Mutant) => !(config?.ignoreStatic && mutant.static && hasSurvived(mutant));
  const mutants: readonly Judged[] = Object.entries(files).flatMap(([file, content]) =>
    content.mutants.filter(isMeasured).map((mutant) => {
      const change = { file, ...changeOf(content.source, mutant) };
      return { ...mutant, ...change, isExplained: explained.has(keyOf(change)) };
    }),
  );
  const survivors = mutants.filter(hasSurvived);
  const open = survivors.filter(({ isExplained }) => !isExplained);
  // If no test covered a mutant although there are tests for it, its survival means nothing.
  const unmeasured = survivors.filter((one) => one.status === 'Survived' && !one.testsCompleted);
  const needed = new Set(survivors.map(keyOf));
  const stale = isWhole
    ? explanations.filter((change) => change.file in files && !needed.has(keyOf(change)))
    : [];
  for (const one of open) printChange(`${one.file}:${one.location.start.line}${metOf(one)}`, one);
  for (const change of stale)
    printChange(`${change.file}: explained, but no mutant with this change survived`, change);
  if (unmeasured.length > 0) console.log(`No test was run against ${unmeasured.length} of the survivors\n`);
  const folders = [...new Set(mutants.map(({ file }) => dirname(file)))];
  for (const folder of folders)
    printScore(
      folder,
      mutants.filter(({ file }) => dirname(file) === folder),
    );
  if (folders.length > 1) printScore('all', mutants);
  const isClean = open.length === 0 && stale.length === 0 && unmeasured.length === 0;
  return { score: countsOf(mutants).score, isClean };
}

function printChange(title: string, { was, is }: Change): void {
  console.log(`${title}\n- ${was}\n+ ${is}\n`);
}

function metOf({ status }: Mutant): string {
  return status === 'NoCoverage' ? ' (covered by no test)' : '';
}

function printScore(title: string, mutants: readonly Judged[]): void {
  const { killed, survived, explained, score } = countsOf(mutants);
  const counts = `${killed} killed, ${survived} survived, ${explained} of them explained`;
  console.log(`${title}: ${Number.isNaN(score) ? 'no mutants' : `${counts}: ${score.toFixed(1)} %`}`);
}

function countsOf(mutants: readonly Judged[]) {
  const killed = mutants.filter(({ status }) => status === 'Killed' || status === 'Timeout').length;
  const survivors = mutants.filter(hasSurvived);
  const explained = survivors.filter(({ isExplained }) => isExplained).length;
  const score = (100 * killed) / (killed + survivors.length - explained);
  return { killed, survived: survivors.length, explained, score };
}

function hasSurvived({ status }: Mutant): boolean {
  return status === 'Survived' || status === 'NoCoverage';
}

function keyOf({ file, was, is }: Change): string {
  return JSON.stringify([file, was, is]);
}

/** The lines that a mutant changes, joined into one line; for removed code, the first line. */
function changeOf(source: string, mutant: Mutant): Omit<Change, 'file'> {
  const {
    location: { start, end },
    replacement = '',
  } = mutant;
  const lines = source.split('\n');
  const first = lines[start.line - 1] ?? '';
  const before = first.slice(0, start.column - 1);
  const after = (lines[end.line - 1] ?? '').slice(end.column - 1);
  const was = end.line > start.line ? `${first} …` : first;
  return { was: flat(was), is: flat(`${before}${replacement}${after}`) };
}

function flat(code: string): string {
  return code.trim().replaceAll(/\s+/g, ' ');
}

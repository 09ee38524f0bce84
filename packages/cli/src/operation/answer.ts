import { Option } from '@commander-js/extra-typings';
import type { OperatorFailure, PartialAnswer, PartialPage } from '@framework/operator';

import { wholeNumber } from '../command-group.js';
import { type ExitCode, exitCode } from '../exit-code.js';
import { table } from '../terminal.js';
import type { OperatorSession } from './operator-session.js';

const pageMax = 1_000;

/** How much of a long answer is wanted. */
export const limitOption = new Option('--limit <count>', 'about how many items at most; 1 to 100,000')
  .argParser(wholeNumber(1, 100_000))
  .default(100)
  .env('FRAMEWORK_CLI_LIMIT');

/** Where a long answer continues. */
export const afterOption = new Option('--after <next>', 'continues behind the end of an earlier answer').env(
  'FRAMEWORK_CLI_AFTER',
);

/** The values of {@link limitOption} and {@link afterOption}. */
export interface PageValues {
  readonly limit: number;
  readonly after?: string | undefined;
}

/** An answer, perhaps with a continuation. */
export interface Answer<Item> extends PartialAnswer<Item> {
  readonly next?: string | undefined;
}

/** How an answer is shown to people. */
export interface Columns<Item> {
  readonly head: readonly string[];
  /** The rows of one item. */
  readonly rows: (item: Item) => readonly (readonly string[])[];
  /** Written if there are no items. */
  readonly none: string;
}

/**
 * Reads pages until there are enough items, or no more. A page may have more items than asked for, because each database answers with
 * as many; all of them are returned.
 *
 * @param size the maximum number of items of one page. Default 1,000
 */
export async function readAll<Item>(
  { limit, after }: PageValues,
  read: (page: { readonly limit: number; readonly after: string | undefined }) => Promise<PartialPage<Item>>,
  size: number = pageMax,
): Promise<Answer<Item>> {
  const items: Item[] = [];
  const failures: OperatorFailure[] = [];
  let next = after;
  do {
    const page = await read({ limit: Math.min(size, limit - items.length), after: next });
    items.push(...page.items);
    failures.push(...page.failures);
    // Only databases that failed are left, and would be asked for the same again.
    if (page.next !== undefined && page.next === next) break;
    next = page.next;
  } while (next !== undefined && items.length < limit);
  return { items, next, failures: distinct(failures) };
}

function distinct(failures: readonly OperatorFailure[]): readonly OperatorFailure[] {
  return [...new Map(failures.map((each) => [JSON.stringify(each), each])).values()];
}

/** Writes an answer; what is missing is told on standard error, too. */
export function writeAnswer<Item>(
  session: Pick<OperatorSession, 'terminal' | 'format' | 'fail'>,
  answer: Answer<Item>,
  { head, rows, none }: Columns<Item>,
): ExitCode {
  const { terminal, format } = session;
  if (format === 'json') terminal.writeJson(answer);
  else {
    // Nothing is known about databases that did not answer.
    const nothing = answer.failures.length === 0 ? none : 'Nothing was found in the databases that answered.';
    terminal.write(answer.items.length === 0 ? nothing : table(head, answer.items.flatMap(rows)));
    if (answer.next !== undefined) terminal.progress(`There may be more: --after '${answer.next}'`);
  }
  return session.fail(answer.failures);
}

/** How a command ends that looked for one thing: nothing was found, although everybody answered. */
export function codeOf({ items, failures }: Answer<unknown>): ExitCode {
  if (failures.length > 0) return exitCode.failed;
  return items.length === 0 ? exitCode.found : exitCode.fine;
}

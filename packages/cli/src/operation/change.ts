import { Option } from '@commander-js/extra-typings';
import { FrameworkError } from '@framework/core';
import type { ChangeAnswer, ChangeOptions } from '@framework/operator';
import { userInfo } from 'node:os';

import { type ExitCode, UsageError, exitCode } from '../exit-code.js';
import { table } from '../terminal.js';
import type { OperatorSession } from './operator-session.js';

export const byOption = new Option(
  '--by <name>',
  'who makes the change; default: the user of the system',
).env('FRAMEWORK_CLI_BY');
export const reasonOption = new Option('--reason <text>', 'why; needed, unless it is a dry run').env(
  'FRAMEWORK_CLI_REASON',
);
export const dryRunOption = new Option('--dry-run', 'only say what would be changed').env(
  'FRAMEWORK_CLI_DRY_RUN',
);
export const yesOption = new Option('--yes', 'do not ask; needed when nobody can be asked').env(
  'FRAMEWORK_CLI_YES',
);

/** The values of the options that every change has. */
export interface ChangeValues {
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
  readonly dryRun?: true | undefined;
  readonly yes?: true | undefined;
}

/** A change that is counted, asked about, and then made. */
export interface Change {
  /** Whether it is about events, and is repeated until none is left. */
  readonly isOfEvents: boolean;
  /** Whether it is made once, because a second step would begin with the same events. Default false. */
  readonly inOneStep?: boolean;
  /** Throws if what was counted would be refused. Default: nothing is. */
  readonly check?: (counted: ChangeAnswer) => void;
  /** What is asked, such as `Replay 3 dead letters?`. */
  readonly question: (counted: ChangeAnswer) => string;
  /** Makes the change, or counts what it would change; of events, at most `limit` in each database. */
  readonly make: (options: ChangeOptions, limit: number) => Promise<ChangeAnswer>;
}

/** How many events are counted in each database. */
const countMax = 100_000;
/** How many events one step changes in each database. */
const stepMax = 10_000;

/** What a whole change did: the sum of its steps. */
interface Changed {
  /** Each step has its own record in the audit. */
  readonly changeIds: readonly string[];
  readonly count: number;
  readonly mayBeMore: boolean;
  readonly items: ChangeAnswer['items'];
  readonly failures: ChangeAnswer['failures'];
}

/**
 * Counts what a change would do, asks a person, and then makes it, step by step until nothing is left of what was counted.
 *
 * @throws UsageError when the reason is missing, nobody can be asked and `--yes` is not given, or the check fails
 */
export async function makeChange(
  session: OperatorSession,
  values: ChangeValues,
  { isOfEvents, inOneStep = false, check, question, make }: Change,
): Promise<ExitCode> {
  const { terminal } = session;
  const signature = signatureOf(values);
  if (values.dryRun !== true && values.yes !== true && !terminal.canAsk)
    throw new UsageError(
      'nobody can be asked whether to make this change: use --yes, or look with --dry-run',
    );
  const counted = await make({ ...signature, dryRun: true }, countMax);
  check?.(counted);
  const isNothing = isOfEvents && counted.count === 0 && counted.failures.length === 0;
  if (values.dryRun === true || isNothing)
    return write(session, { ...counted, changeIds: [] }, { isOfEvents, isDryRun: values.dryRun === true });
  // Before the question, because it is about less than everything then.
  session.fail(counted.failures);
  if (values.yes !== true && !(await terminal.confirm(question(counted)))) {
    terminal.fail('Nothing was changed.');
    return exitCode.usage;
  }
  const steps = isOfEvents && !inOneStep ? counted : undefined;
  const changed = await inSteps(session, steps, (limit) => make(signature, limit));
  return write(session, changed, { isOfEvents, isDryRun: false });
}

/**
 * Stops in each database at what was counted there: what is blocked meanwhile, perhaps once more, would otherwise be changed as well, and
 * would count for events of other databases that are left.
 *
 * @param counted `undefined` for a change of one step
 */
async function inSteps(
  { terminal }: OperatorSession,
  counted: ChangeAnswer | undefined,
  step: (limit: number) => Promise<ChangeAnswer>,
): Promise<Changed> {
  const items = new Map<string, ChangeAnswer['items'][number]>();
  const leftIn = (key: string): number => countedIn(counted, key) - (items.get(key)?.count ?? 0);
  const changeIds: string[] = [];
  let keys = counted?.items.map(keyOf) ?? [];
  for (;;) {
    // A database that could not be counted may have any number.
    const lefts = (counted?.failures.length ?? 0) > 0 ? [stepMax] : keys.map(leftIn);
    const { changeId, ...answer } = await step(Math.min(stepMax, Math.max(1, ...lefts))).catch(
      (error: unknown) => {
        if (changeIds.length === 0) throw error;
        return refused(error, keys, items);
      },
    );
    if (changeId !== undefined) changeIds.push(changeId);
    for (const item of answer.items) {
      const key = keyOf(item);
      items.set(key, { ...item, count: (items.get(key)?.count ?? 0) + item.count });
    }
    const failed = new Set(answer.failures.map(keyOf));
    const isUnfinished = (item: ChangeAnswer['items'][number]): boolean =>
      (item.mayBeMore || failed.has(keyOf(item))) && leftIn(keyOf(item)) > 0;
    const unfinished = answer.items.filter(isUnfinished);
    const all = [...items.values()];
    const count = all.reduce((sum, item) => sum + item.count, 0);
    if (unfinished.length === 0 || answer.failures.length > 0) {
      // What one step has left, a later one may have changed.
      const ended = all.map((item) => ({ ...item, mayBeMore: isUnfinished(item) }));
      return {
        changeIds,
        count,
        mayBeMore: unfinished.length > 0,
        items: ended,
        failures: answer.failures,
      };
    }
    keys = unfinished.map(keyOf);
    terminal.progress(`${count} events …`);
  }
}

/**
 * A step that was refused as a whole, such as when the handler was retired meanwhile. The earlier ones are made, so that the command has
 * failed, and must not look as if it had been wrong.
 */
function refused(
  error: unknown,
  keys: readonly string[],
  made: ReadonlyMap<string, ChangeAnswer['items'][number]>,
): ChangeAnswer {
  const items = keys.flatMap((key) => made.get(key) ?? []).map((item) => ({ ...item, count: 0 }));
  const { code, message } = FrameworkError.find(error) ?? { code: 'internal', message: undefined };
  const failures = items.map(({ shards }) => ({
    shards,
    code,
    ...(message !== undefined && { detail: message }),
  }));
  return { changeId: undefined, count: 0, mayBeMore: true, items, failures };
}

/** How many events a database has to change, by what was counted there. */
function countedIn(counted: ChangeAnswer | undefined, key: string): number {
  if (counted === undefined) return 0;
  const item = counted.items.find((each) => keyOf(each) === key);
  if (item === undefined) return counted.failures.length > 0 ? Infinity : 0;
  return item.mayBeMore ? Infinity : item.count;
}

function keyOf({ shards }: { readonly shards: readonly string[] }): string {
  return shards.join();
}

function write(session: OperatorSession, changed: Changed, { isOfEvents, isDryRun }: Written): ExitCode {
  const { terminal, format } = session;
  const { changeIds, count, items, mayBeMore, failures } = changed;
  if (format === 'json') terminal.writeJson({ dryRun: isDryRun, ...changed });
  else {
    const rows = items.map((item) => [item.shards.join(', '), String(item.count)]);
    if (rows.length > 0) terminal.write(table(['shards', 'events'], rows));
    const what = isOfEvents
      ? `${count} events ${isDryRun ? 'would be' : 'were'} changed`
      : madeText(items, isDryRun);
    const ids = changeIds.length > 0 ? ` (${changeIds.join(', ')})` : '';
    const more = mayBeMore ? ' There may be more: repeat the command.' : '';
    terminal.write(`${what}${ids}.${more}`);
  }
  return session.fail(failures);
}

/** What an answer is about. */
interface Written {
  readonly isOfEvents: boolean;
  readonly isDryRun: boolean;
}

function madeText(items: ChangeAnswer['items'], isDryRun: boolean): string {
  const count = `${items.length} database${items.length === 1 ? '' : 's'}`;
  return `The change ${isDryRun ? 'would be' : 'was'} made in ${count}`;
}

function signatureOf({ by, reason, dryRun }: ChangeValues): { readonly by: string; readonly reason: string } {
  if (reason === undefined && dryRun !== true)
    throw new UsageError('the change has no reason: use --reason <text>, or look with --dry-run');
  return { by: by ?? systemUser(), reason: reason ?? 'dry run' };
}

function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    throw new UsageError('the user of the system has no name: use --by <name>');
  }
}

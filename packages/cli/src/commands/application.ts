import { Option } from '@commander-js/extra-typings';
import type { InvariantViolation, OperatorFailure, OperatorInvariant } from '@framework/operator';
import { FrameworkError } from '@framework/core';
import { writeFile } from 'node:fs/promises';

import { type CommandGroup, withCommonOptions, wholeNumber } from '../command-group.js';
import { type ExitCode, UsageError, exitCode } from '../exit-code.js';
import { type PageValues, afterOption, limitOption, readAll, writeAnswer } from '../operation/answer.js';
import { moduleName } from '../operation/open-application.js';
import { type OperatorSession, withOperator } from '../operation/operator-session.js';
import { cellOf, plain, table } from '../terminal.js';

const violationsOption = new Option(
  '--violations <count>',
  'how many violations of each invariant are listed',
)
  .argParser(wholeNumber(1, 100_000))
  .default(100)
  .env('FRAMEWORK_CLI_VIOLATIONS');

/** `framework view`, `transfers`, `check`, `openapi` and `asyncapi`: what the application adds. */
export const application: CommandGroup = (program, context) => {
  withCommonOptions(
    program
      .command('view [name]')
      .description("show a view of the application, or list the application's views; changes nothing")
      .addOption(limitOption)
      .addOption(afterOption),
  ).action((name, options) =>
    withOperator(options, context, (session) =>
      name === undefined ? listViews(session) : showView(session, name, options),
    ),
  );
  withCommonOptions(
    program
      .command('transfers')
      .description("show the application's view transfers, as view transfers does; changes nothing")
      .addOption(limitOption)
      .addOption(afterOption),
  ).action((options) => withOperator(options, context, (session) => showView(session, 'transfers', options)));
  withCommonOptions(
    program
      .command('check [invariant...]')
      .description("check the application's invariants over all databases, step by step; changes nothing")
      .addOption(violationsOption),
  ).action((names, options) =>
    withOperator(options, context, (session) => check(session, names, options.violations)),
  );
  for (const [name, title] of [
    ['openapi', 'OpenAPI document of its HTTP interface'],
    ['asyncapi', 'AsyncAPI document of what it publishes'],
  ] as const)
    withCommonOptions(
      program
        .command(`${name} [file]`)
        .description(`write the application's ${title} to a file or to standard output`),
    ).action((file, options) =>
      withOperator(options, context, (session) => writeDocument(session, name, file)),
    );
};

async function listViews(session: OperatorSession): Promise<ExitCode> {
  const { operator, terminal, format } = session;
  if (operator.views.length === 0) throw lacking(session, 'views');
  const views = operator.views.map(({ name, summary }) => ({ name, summary }));
  if (format === 'json') terminal.writeJson({ views });
  else
    terminal.write(
      table(
        ['view', 'shows'],
        views.map(({ name, summary }) => [name, summary]),
      ),
    );
  return exitCode.fine;
}

async function showView(session: OperatorSession, name: string, page: PageValues): Promise<ExitCode> {
  const view = named(session, 'view', session.operator.views, name);
  const answer = await readAll(page, (each) => view.read(each));
  const head = [...new Set(answer.items.flatMap((item) => Object.keys(item)))];
  return writeAnswer(session, answer, {
    head,
    rows: (item) => [head.map((key) => cellOf(item[key]))],
    none: `The view ${name} has no rows.`,
  });
}

/** What a whole check of an invariant found. */
interface Checked {
  readonly name: string;
  readonly summary: string;
  readonly examinedCount: number;
  readonly violationCount: number;
  /** The first ones. */
  readonly violations: readonly InvariantViolation[];
  readonly failures: readonly OperatorFailure[];
}

/** How many models of each database one step examines. */
const stepSize = 1_000;

async function check(
  session: OperatorSession,
  names: readonly string[],
  listedMax: number,
): Promise<ExitCode> {
  const { operator, terminal, format } = session;
  const all = operator.invariants;
  if (all.length === 0) throw lacking(session, 'invariants');
  const wanted = names.length === 0 ? all : names.map((name) => named(session, 'invariant', all, name));
  const checked: Checked[] = [];
  for (const invariant of wanted) {
    const done = await checkOne(session, invariant, listedMax);
    checked.push(done);
    if (format === 'table') writeChecked(session, done);
  }
  if (format === 'json') terminal.writeJson({ invariants: checked });
  const code = session.fail(checked.flatMap(({ failures }) => failures));
  return checked.some(({ violationCount }) => violationCount > 0) ? exitCode.found : code;
}

async function checkOne(
  { terminal }: OperatorSession,
  invariant: OperatorInvariant,
  listedMax: number,
): Promise<Checked> {
  const { name, summary } = invariant;
  const violations: InvariantViolation[] = [];
  const failures = new Map<string, OperatorFailure>();
  let [examinedCount, violationCount] = [0, 0];
  let after: string | undefined;
  try {
    do {
      const step = await invariant.check({ limit: stepSize, after });
      examinedCount += step.examinedCount;
      violationCount += step.items.length;
      violations.push(...step.items.slice(0, Math.max(0, listedMax - violations.length)));
      for (const failure of step.failures) failures.set(JSON.stringify(failure), failure);
      terminal.progress(`${name}: ${examinedCount} examined, ${violationCount} violations …`);
      // Only databases that failed are left.
      if (step.next === after || (step.examinedCount === 0 && step.failures.length > 0)) break;
      after = step.next;
    } while (after !== undefined);
  } catch (error) {
    const code = FrameworkError.find(error)?.code ?? 'internal';
    failures.set(code, { shards: [], code });
  }
  return { name, summary, examinedCount, violationCount, violations, failures: [...failures.values()] };
}

function writeChecked({ terminal }: OperatorSession, checked: Checked): void {
  const { name, examinedCount, violationCount, violations, failures } = checked;
  const parts = failures.length > 0 ? ', in a part of the databases' : '';
  terminal.write(`${name}: ${violationCount} violations in ${examinedCount} models${parts}`);
  for (const { text, id, shards } of violations)
    terminal.write(plain(`  ${shards.join(', ')} ${id}: ${text}`));
  if (violationCount > violations.length) terminal.write(`  and ${violationCount - violations.length} more`);
}

async function writeDocument(
  session: OperatorSession,
  name: string,
  file: string | undefined,
): Promise<ExitCode> {
  const {
    application: { extensions },
    terminal,
  } = session;
  const [make] = extensions.flatMap(({ documents = {} }) => documents[name] ?? []);
  if (make === undefined) throw lacking(session, 'documents', `document ${name}`);
  const document = await make();
  // As in a file: a password may be a word of the document.
  if (file === undefined) await terminal.writeExactly(document, 2);
  else {
    await writeFile(file, `${JSON.stringify(document, undefined, 2)}\n`);
    terminal.progress(`${file} is written.`);
  }
  return exitCode.fine;
}

/** @throws UsageError when nothing has the name */
function named<Item extends { readonly name: string }>(
  session: OperatorSession,
  what: string,
  items: readonly Item[],
  name: string,
): Item {
  const found = items.find((each) => each.name === name);
  if (found !== undefined) return found;
  if (items.length === 0) throw lacking(session, `${what}s`);
  throw new UsageError(`there is no ${what} ${name}, only ${items.map((each) => each.name).join(', ')}`);
}

/** Says what to configure, or that the module has nothing of the kind. */
function lacking({ config }: OperatorSession, kind: string, what: string = kind): UsageError {
  const module = moduleName(config);
  return new UsageError(
    module === undefined
      ? `${kind} come from the application's module: name it in framework.operator.module`
      : `the module ${module}, which framework.operator.module names, has no ${what}`,
  );
}

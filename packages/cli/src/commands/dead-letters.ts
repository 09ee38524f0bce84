import { Option } from '@commander-js/extra-typings';
import type { BlockedFilter, BlockedRow } from '@framework/core/adapter';

import { type CommandGroup, withCommonOptions } from '../command-group.js';
import { type Columns, afterOption, codeOf, limitOption, readAll, writeAnswer } from '../operation/answer.js';
import {
  type ChangeValues,
  byOption,
  dryRunOption,
  makeChange,
  reasonOption,
  yesOption,
} from '../operation/change.js';
import { eventFields, firstLine } from '../operation/event-columns.js';
import { type OperatorSession, withOperator } from '../operation/operator-session.js';
import { type ExitCode, UsageError } from '../exit-code.js';
import { cellOf, fieldLines, plain } from '../terminal.js';

const handlerOption = new Option('--handler <name>', 'only for this handler').env('FRAMEWORK_CLI_HANDLER');
const errorLineOption = new Option(
  '--error-line <text>',
  'only with this first line of the error, cut off after 200 characters',
).env('FRAMEWORK_CLI_ERROR_LINE');
const typeOption = new Option('--type <name>', 'only those of this type').env('FRAMEWORK_CLI_TYPE');
const modelOption = new Option('--model <id>', 'only those of this model').env('FRAMEWORK_CLI_MODEL');
const eventOption = new Option('--event <id>', 'only this event').env('FRAMEWORK_CLI_EVENT');
const eventsOption = new Option('--events', 'list single events instead of groups').env(
  'FRAMEWORK_CLI_EVENTS',
);
const stateOption = new Option('--state <state>', 'dead letters, or events that will be tried again')
  .choices(['dead', 'waiting'] as const)
  .default('dead' as const)
  .env('FRAMEWORK_CLI_STATE');

/** `framework dead-letters`: lists events that handlers could not handle, and replays or skips them. */
export const deadLetters: CommandGroup = (program, context) => {
  const group = program
    .command('dead-letters')
    .description('list events that handlers could not handle, replay or skip them');
  withCommonOptions(
    group
      .command('list')
      .description('list dead letters by handler and error; with --events single ones; changes nothing')
      .addOption(eventsOption)
      .addOption(handlerOption)
      .addOption(errorLineOption)
      .addOption(typeOption)
      .addOption(modelOption)
      .addOption(stateOption)
      .addOption(limitOption)
      .addOption(afterOption),
  ).action((options) => withOperator(options, context, (session) => list(session, options)));
  withCommonOptions(
    group
      .command('show <event-id>')
      .description('show everything about an event that blocks its model; changes nothing'),
  ).action((id, options) => withOperator(options, context, (session) => show(session, id)));
  for (const [name, description] of [
    ['replay', 'give dead letters all their attempts again'],
    ['skip', 'pass over dead letters or events that will be tried again, so that those behind them continue'],
  ] as const) {
    const command = group
      .command(name)
      .description(description)
      .addOption(handlerOption)
      .addOption(errorLineOption)
      .addOption(typeOption)
      .addOption(modelOption)
      .addOption(eventOption)
      .addOption(byOption)
      .addOption(reasonOption)
      .addOption(dryRunOption)
      .addOption(yesOption);
    if (name === 'replay')
      withCommonOptions(command).action((options) =>
        withOperator(options, context, (session) => change(session, name, options)),
      );
    else
      withCommonOptions(command.addOption(stateOption)).action((options) =>
        withOperator(options, context, (session) => change(session, name, options)),
      );
  }
};

/** The values of the options that say which blocked models are meant, by their first events. */
interface FilterValues {
  readonly handler?: string | undefined;
  readonly errorLine?: string | undefined;
  readonly type?: string | undefined;
  readonly model?: string | undefined;
  readonly event?: string | undefined;
  readonly state?: 'dead' | 'waiting' | undefined;
}

function filterOf({ handler, errorLine, type, model, event, state = 'dead' }: FilterValues): BlockedFilter {
  return {
    dead: state === 'dead',
    ...(handler !== undefined && { handler }),
    ...(errorLine !== undefined && { errorLine }),
    ...(type !== undefined && { eventType: type }),
    ...(model !== undefined && { modelId: model }),
    ...(event !== undefined && { eventId: event }),
  };
}

interface ListValues extends FilterValues {
  readonly events?: true | undefined;
  readonly limit: number;
  readonly after?: string | undefined;
}

/** The maximum number of groups that one page of a database has. */
const groupsMax = 100;

async function list(session: OperatorSession, options: ListValues): Promise<ExitCode> {
  const { operator } = session;
  if (options.events === true) {
    const filter = filterOf(options);
    return writeAnswer(
      session,
      await readAll(options, (page) => operator.blocked(filter, page)),
      blockedColumns,
    );
  }
  const { handler, errorLine, type, model, state } = options;
  if ((errorLine ?? type ?? model) !== undefined || state === 'waiting')
    throw new UsageError('only --handler selects groups: add --events to list single events');
  const answer = await readAll(options, (page) => operator.deadLetters({ handler }, page), groupsMax);
  return writeAnswer(session, answer, {
    head: ['handler', 'error', 'count', 'shards', 'oldest', 'example'],
    rows: (group) => [
      [
        group.handler,
        group.errorLine,
        `${group.isLowerBound ? 'at least ' : ''}${group.count}`,
        group.shards.join(', '),
        cellOf(group.oldestDate),
        group.exampleEventId,
      ],
    ],
    none: 'No dead letters.',
  });
}

const blockedColumns: Columns<BlockedRow> = {
  head: ['blocked', 'handler', 'event', 'model', 'version', 'type', 'attempts', 'next attempt', 'error'],
  rows: ({ blockedDate, handler, event, attempts, nextAttemptDate, error }) => [
    [
      cellOf(blockedDate),
      handler,
      event.id,
      `${event.modelName} ${event.modelId}`,
      String(event.modelVersion),
      event.type,
      String(attempts),
      cellOf(nextAttemptDate),
      firstLine(error),
    ],
  ],
  none: 'No blocked events.',
};

async function show(session: OperatorSession, eventId: string): Promise<ExitCode> {
  const { operator, terminal, format } = session;
  const answer = await readAll({ limit: 1_000 }, (page) => operator.blocked({ eventId }, page));
  if (format === 'json') terminal.writeJson(answer);
  else if (answer.items.length === 0)
    terminal.write(
      `No handler has failed at the event ${plain(eventId)}. Whether it waits behind another one, framework why ${plain(eventId)} says.`,
    );
  else
    for (const { handler, event, error, ...row } of answer.items) {
      const { dead, blockedDate, attempts, uncounted, nextAttemptDate } = row;
      const state = dead ? 'dead letter' : 'waiting';
      const calls = `${attempts} attempts, ${uncounted} other calls`;
      const own = { handler, state, blocked: blockedDate, calls, next: nextAttemptDate };
      terminal.write(fieldLines({ ...own, ...eventFields(event) }));
      terminal.write(`error:\n${(error ?? '-').split('\n').map(plain).join('\n')}\n`);
    }
  session.fail(answer.failures);
  return codeOf(answer);
}

function change(
  session: OperatorSession,
  name: 'replay' | 'skip',
  options: FilterValues & ChangeValues,
): Promise<ExitCode> {
  const filter = filterOf(options);
  const what = filter.dead === true ? 'dead letters' : 'events that will be tried again';
  return makeChange(session, options, {
    isOfEvents: true,
    question: ({ count, mayBeMore }) =>
      `${name === 'replay' ? 'Replay' : 'Skip'} ${mayBeMore ? 'at least ' : ''}${count} ${what}?`,
    make: (signed, limit) => session.operator[name](filter, { ...signed, limit }),
  });
}

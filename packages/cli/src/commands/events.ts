import { type Command, Option, type OptionValues } from '@commander-js/extra-typings';
import type { FrameworkConfig } from '@framework/core';
import type { TrackedEvent } from '@framework/core/adapter';
import { type EventSearch, type OfShards, Operator } from '@framework/operator';
import { openRelays } from '@framework/relay/config';
import { setTimeout as delay } from 'node:timers/promises';

import {
  type CommonOptions,
  type CommandGroup,
  withCommonOptions,
  pointInTime,
  wholeNumber,
} from '../command-group.js';
import { type ExitCode, UsageError, exitCode } from '../exit-code.js';
import { afterOption, codeOf, limitOption, readAll, writeAnswer } from '../operation/answer.js';
import {
  type ChangeValues,
  byOption,
  dryRunOption,
  makeChange,
  reasonOption,
  yesOption,
} from '../operation/change.js';
import { eventCells, eventColumns, eventFields, firstLine } from '../operation/event-columns.js';
import { EventTail } from '../operation/event-tail.js';
import { type OperatorSession, relaysOf, withOperator } from '../operation/operator-session.js';
import { cellOf, fieldLines, plain, table } from '../terminal.js';

const searchOptions = {
  shard: new Option('--shard <shard>', 'only the database of this shard, as group/member').env(
    'FRAMEWORK_CLI_SHARD',
  ),
  model: new Option('--model <id>', 'only those of this model').env('FRAMEWORK_CLI_MODEL'),
  actionId: new Option('--action-id <id>', 'only those of the action with this id').env(
    'FRAMEWORK_CLI_ACTION_ID',
  ),
  action: new Option('--action <name>', 'only those of actions with this name').env('FRAMEWORK_CLI_ACTION'),
  type: new Option('--type <name>', 'only those of this type').env('FRAMEWORK_CLI_TYPE'),
  principal: new Option('--principal <name>', 'only those of this principal').env('FRAMEWORK_CLI_PRINCIPAL'),
  since: new Option('--since <time>', 'not created before this time')
    .argParser(pointInTime)
    .env('FRAMEWORK_CLI_SINCE'),
  until: new Option('--until <time>', 'created before this time')
    .argParser(pointInTime)
    .env('FRAMEWORK_CLI_UNTIL'),
};
const relayOption = new Option('--relay <name>', 'the relay that publishes them').env('FRAMEWORK_CLI_RELAY');
const againMaxOption = new Option(
  '--limit <count>',
  'more events of a database than this are refused, and none is published; 1 to 100,000',
)
  .argParser(wholeNumber(1, 100_000))
  .default(10_000)
  .env('FRAMEWORK_CLI_LIMIT');
const lastOption = new Option('--last <count>', 'how many earlier events are shown first')
  .argParser(wholeNumber(0, 1_000))
  .default(10)
  .env('FRAMEWORK_CLI_LAST');
const countOption = new Option('--count <count>', 'ends after this number of events; without it, goes on')
  .argParser(wholeNumber(1, 1_000_000_000))
  .env('FRAMEWORK_CLI_COUNT');
const intervalOption = new Option('--interval-ms <ms>', 'how long to wait before looking again')
  .argParser(wholeNumber(10, 600_000))
  .default(1_000)
  .env('FRAMEWORK_CLI_INTERVAL_MS');

/** `framework events`: follows, searches, shows and exports the events of the logs. */
export const events: CommandGroup = (program, context) => {
  const group = program.command('events').description('look at the logs; changes nothing');
  const { shard, model, action, type, principal } = searchOptions;
  withCommonOptions(
    group
      .command('tail')
      .description('show the newest events, and then those that follow, until Ctrl-C')
      .addOption(shard)
      .addOption(model)
      .addOption(action)
      .addOption(type)
      .addOption(principal)
      .addOption(lastOption)
      .addOption(countOption)
      .addOption(intervalOption),
  ).action((options) => withOperator(options, context, (session) => tail(session, options)));
  searching(
    group
      .command('search')
      .description('search events, the newest first; by action, type or principal only with a time or an id')
      .addOption(limitOption)
      .addOption(afterOption),
  ).action((options) =>
    withOperator(options, context, async (session) => {
      const search = searchOf(options);
      const answer = await readAll(options, (page) => session.operator.events(search, page));
      return writeAnswer(session, answer, eventColumns);
    }),
  );
  withCommonOptions(
    group.command('show <id>').description('show one event, and why handlers have not passed it'),
  ).action((id, options) => withOperator(options, context, (session) => show(session, id)));
  searching(
    group
      .command('export')
      .description('write all matching events as lines of JSON, database by database, the newest first'),
  ).action((options) => withOperator(options, context, (session) => exportAll(session, searchOf(options))));
  searching(
    group
      .command('publish-again')
      .description('let a relay publish events again that it has passed; its place in the log stays')
      .addOption(relayOption)
      .addOption(againMaxOption)
      .addOption(byOption)
      .addOption(reasonOption)
      .addOption(dryRunOption)
      .addOption(yesOption),
  ).action((options) => withOperator(options, context, (session) => publishAgain(session, options)));
};

/** Adds the options that say which events are meant, and those of every command. */
function searching<Args extends unknown[], Values extends OptionValues>(
  command: Command<Args, Values>,
): Command<Args, Values & CommonOptions & SearchValues> {
  for (const option of Object.values(searchOptions)) command.addOption(option);
  return withCommonOptions(command);
}

/** Opens the relay for this command, without the source that only a running relay reads from; others may be broken. */
async function publishAgain(
  session: OperatorSession,
  options: SearchValues & ChangeValues & { readonly relay?: string | undefined; readonly limit: number },
): Promise<ExitCode> {
  const { relay, limit } = options;
  if (relay === undefined) throw new UsageError('no relay is named: use --relay <name>');
  const { config, application } = session;
  const isMeant = (section: FrameworkConfig['relay'][number]): boolean =>
    relaysOf([section]).some(({ name, aliases }) => name === relay || aliases?.includes(relay) === true);
  const meant = config.relay.filter(isMeant);
  const others = config.relay.filter((section) => !isMeant(section));
  const relays = await openRelays({
    ...config,
    relay: meant.map(({ source: _unused, ...section }) => section),
  });
  try {
    const operator = new Operator({ ...application, relays: [...relays, ...relaysOf(others)] });
    return await makeChange(session, options, {
      isOfEvents: true,
      inOneStep: true,
      check: ({ mayBeMore }) => {
        if (mayBeMore)
          throw new UsageError(
            `More than ${limit} events of a database match: name a shorter time, or more with --limit`,
          );
      },
      question: ({ count }) => `Publish ${count} events again by ${relay}?`,
      make: (signed) => operator.publishAgain(searchOf(options), { ...signed, relay, limit }),
    });
  } finally {
    await Promise.allSettled(relays.map(({ broker }) => broker.close()));
  }
}

/** The values of the options that say which events are meant. */
interface SearchValues {
  readonly shard?: string | undefined;
  readonly model?: string | undefined;
  readonly actionId?: string | undefined;
  readonly action?: string | undefined;
  readonly type?: string | undefined;
  readonly principal?: string | undefined;
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
}

function searchOf(values: SearchValues): EventSearch {
  const { shard, model, actionId, action, type, principal, since, until } = values;
  return {
    ...(shard !== undefined && { shard }),
    ...(model !== undefined && { modelId: model }),
    ...(actionId !== undefined && { actionId }),
    ...(action !== undefined && { action }),
    ...(type !== undefined && { type }),
    ...(principal !== undefined && { principal }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  };
}

async function tail(
  { operator, terminal, format, fail }: OperatorSession,
  options: SearchValues & {
    readonly last: number;
    readonly count?: number | undefined;
    readonly intervalMs: number;
  },
): Promise<ExitCode> {
  const { last, count = Infinity, intervalMs } = options;
  const interrupted = new AbortController();
  const interrupt = (): void => interrupted.abort();
  process.once('SIGINT', interrupt);
  const ended = AbortSignal.any([interrupted.signal, terminal.readerGone]);
  const followed = new EventTail(operator, searchOf(options));
  try {
    let shown = 0;
    let look = await followed.past(Math.min(last, count));
    for (;;) {
      const code = fail(look.failures);
      if (look.isCut) terminal.fail('note: there were more events than could be read; some are left out');
      for (const item of look.items.slice(0, count - shown))
        if (format === 'json') terminal.writeJson(item, { isOneLine: true });
        else terminal.write(eventCells(item).map(plain).join('  '));
      shown += look.items.length;
      if (shown >= count) return code;
      await delay(intervalMs, undefined, { signal: ended }).catch(() => undefined);
      if (ended.aborted) return code;
      look = await followed.look();
    }
  } finally {
    process.off('SIGINT', interrupt);
  }
}

async function show({ operator, terminal, format, fail }: OperatorSession, id: string): Promise<ExitCode> {
  const answer = await operator.event(id);
  if (format === 'json') terminal.writeJson(answer);
  else if (answer.items.length === 0)
    terminal.write(`No database that answered knows the event ${plain(id)}.`);
  else
    for (const { event, standings, shards } of answer.items) {
      terminal.write(`${fieldLines({ shards: shards.join(', '), ...eventFields(event) })}\n`);
      const rows = standings.map(({ handler, kind, paused, ...more }) => [
        handler,
        kind,
        cellOf(paused),
        cellOf('attempts' in more ? more.attempts : undefined),
        cellOf('untilDate' in more ? more.untilDate : undefined),
        cellOf('behindEventId' in more ? more.behindEventId : undefined),
        cellOf('leasedTo' in more ? more.leasedTo : undefined),
        firstLine('error' in more ? more.error : undefined),
      ]);
      terminal.write(
        table(['handler', 'state', 'paused', 'attempts', 'next attempt', 'behind', 'process', 'error'], rows),
      );
    }
  fail(answer.failures);
  return codeOf(answer);
}

/** How many events are read at a time: each may have 65,536 bytes of payload and params. */
const exportPageSize = 200;
/** How often progress is told, in milliseconds. */
const progressMs = 1_000;

/**
 * Writes one database after the other, so that one that fails ends only its own part, and at most a page is kept in memory. Values that
 * lists leave out are read one by one.
 */
async function exportAll(session: OperatorSession, given: EventSearch): Promise<ExitCode> {
  const { operator, terminal, fail } = session;
  // It reads all of the log anyway, for which a search wants a time.
  const search = { since: new Date(0), ...given };
  const shards =
    search.shard === undefined
      ? operator.shardsOfDatabases.flatMap(([first]) => (first === undefined ? [] : [first]))
      : [search.shard];
  let code: ExitCode = exitCode.fine;
  let count = 0;
  let toldMs = performance.now();
  for (const shard of shards) {
    let after: string | undefined;
    do {
      const page = await operator.events({ ...search, shard }, { limit: exportPageSize, after });
      for (const item of page.items) {
        if (terminal.readerGone.aborted) return code;
        const { whole, isMissing } = await wholeItem(operator, item);
        if (isMissing)
          code = fail([{ shards: item.shards, code: 'internal', detail: `${item.event.id} is incomplete` }]);
        await terminal.writeExactly(whole);
        count++;
      }
      if (page.failures.length > 0) code = fail(page.failures);
      after = page.failures.length > 0 ? undefined : page.next;
      if (performance.now() - toldMs > progressMs) {
        terminal.progress(`${count} events …`);
        toldMs = performance.now();
      }
    } while (after !== undefined);
  }
  terminal.progress(`${count} events`);
  return code;
}

/** An event with payload and params, which are left out of lists if they are large. */
async function wholeItem(
  operator: Operator,
  item: OfShards<TrackedEvent>,
): Promise<{ readonly whole: OfShards<TrackedEvent>; readonly isMissing: boolean }> {
  if (item.event.omitted !== true) return { whole: item, isMissing: false };
  const { items } = await operator.event(item.event.id);
  const event = items.find(({ shards }) => shards[0] === item.shards[0])?.event;
  if (event === undefined || event.omitted === true) return { whole: item, isMissing: true };
  return { whole: { ...item, event }, isMissing: false };
}

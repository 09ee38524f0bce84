import { Option } from '@commander-js/extra-typings';
import type { ChangeAnswer, Consumer } from '@framework/operator';

import { type CommandGroup, withCommonOptions } from '../command-group.js';
import type { ExitCode } from '../exit-code.js';
import { type Columns, writeAnswer } from '../operation/answer.js';
import { byOption, dryRunOption, makeChange, reasonOption, yesOption } from '../operation/change.js';
import { type OperatorSession, withOperator } from '../operation/operator-session.js';
import { cellOf, plain } from '../terminal.js';

const discardOption = new Option(
  '--discard-blocked',
  'remove its blocked models as well, with all events that wait in them',
).env('FRAMEWORK_CLI_DISCARD_BLOCKED');

/** `framework consumers`, `relays`, `pause`, `resume` and `retire`: how far handlers and relays are, and whether they work. */
export const consumers: CommandGroup = (program, context) => {
  withCommonOptions(
    program
      .command('consumers')
      .description('show how far each handler and relay is in each database; changes nothing'),
  ).action((options) => withOperator(options, context, (session) => list(session, () => true)));
  withCommonOptions(
    program
      .command('relays')
      .description('show how far each relay of the configuration is in each database; changes nothing'),
  ).action((options) => withOperator(options, context, (session) => list(session, ({ isRelay }) => isRelay)));
  for (const [name, description] of [
    ['pause', 'pause a handler or a relay; nothing is lost'],
    ['resume', 'resume a handler or a relay where it was'],
  ] as const)
    withCommonOptions(
      program
        .command(`${name} <handler>`)
        .description(description)
        .addOption(byOption)
        .addOption(reasonOption)
        .addOption(dryRunOption)
        .addOption(yesOption),
    ).action((handler, options) =>
      withOperator(options, context, (session) =>
        makeChange(session, options, {
          isOfEvents: false,
          question: () => `${name === 'pause' ? 'Pause' : 'Resume'} ${plain(handler)}?`,
          make: (signed) => session.operator[name](handler, signed),
        }),
      ),
    );
  withCommonOptions(
    program
      .command('retire <handler>')
      .description('remove a handler that no code has any more')
      .addOption(discardOption)
      .addOption(byOption)
      .addOption(reasonOption)
      .addOption(dryRunOption)
      .addOption(yesOption),
  ).action((handler, options) =>
    withOperator(options, context, (session) =>
      makeChange(session, options, {
        isOfEvents: false,
        question: (counted) => `Remove ${plain(handler)} for good${discardedText(counted)}?`,
        make: (signed) =>
          session.operator.retire(handler, { ...signed, discardBlocked: options.discardBlocked }),
      }),
    ),
  );
};

/** What a handler loses that is retired, as far as it was counted. */
function discardedText({ count, mayBeMore }: ChangeAnswer): string {
  if (count === 0) return '';
  const models = `${countText(count, mayBeMore)} blocked model${count === 1 ? '' : 's'}`;
  return `, with ${models} and all events that wait in ${count === 1 ? 'it' : 'them'}`;
}

async function list(session: OperatorSession, wants: (consumer: Consumer) => boolean): Promise<ExitCode> {
  const { items, failures } = await session.operator.consumers();
  return writeAnswer(session, { items: items.filter(wants), failures }, columns);
}

const columns: Columns<Consumer> = {
  head: [
    'handler',
    'kind',
    'shards',
    'paused',
    'pending',
    'oldest ms',
    'blocked',
    'dead',
    'processes',
    'free slots',
  ],
  rows: ({ handler, isRelay, databases }) =>
    databases.map((place) => [
      handler,
      isRelay ? 'relay' : 'handler',
      place.shards.join(', '),
      cellOf(place.paused),
      String(place.pendingCount),
      String(Math.round(place.oldestPendingMs)),
      countText(place.blockedCount, place.blockedIsLowerBound),
      countText(place.deadCount, place.deadIsLowerBound),
      place.processes.map(({ processId, slotCount }) => `${processId} (${slotCount})`).join(', ') || '-',
      String(place.freeSlotCount),
    ]),
  none: 'No consumers.',
};

function countText(count: number, isLowerBound: boolean): string {
  return `${isLowerBound ? 'at least ' : ''}${count}`;
}

import { Option } from '@commander-js/extra-typings';
import type { ExplanationSide, OperatorFailure, WhyAnswer } from '@framework/operator';

import { type CommandGroup, withCommonOptions } from '../command-group.js';
import { type ExitCode, exitCode } from '../exit-code.js';
import { afterOption, codeOf, limitOption, readAll, writeAnswer } from '../operation/answer.js';
import { eventColumns } from '../operation/event-columns.js';
import { HistoryCheck } from '../operation/history-check.js';
import { type OperatorSession, withOperator } from '../operation/operator-session.js';
import { cellOf, fieldLines, plain, table } from '../terminal.js';

const verifyOption = new Option(
  '--verify',
  'check that no version is missing and nothing occurs twice, instead of showing events',
).env('FRAMEWORK_CLI_VERIFY');
const principalOption = new Option('--principal <name>', 'only those of this principal').env(
  'FRAMEWORK_CLI_PRINCIPAL',
);

/** `framework model`, `action`, `key`, `why` and `audit`: what the databases know under an id, and what operators have changed. */
export const lookUps: CommandGroup = (program, context) => {
  withCommonOptions(
    program
      .command('model <id>')
      .description('show the history of a model, by version; changes nothing')
      .addOption(verifyOption)
      .addOption(limitOption)
      .addOption(afterOption),
  ).action((id, options) =>
    withOperator(options, context, async (session) => {
      if (options.verify === true) return verify(session, id);
      const answer = await readAll(options, (page) => session.operator.model(id, page));
      writeAnswer(session, answer, { ...eventColumns, none: `Nothing is known of the model ${plain(id)}.` });
      return codeOf(answer);
    }),
  );
  withCommonOptions(
    program.command('action <id>').description('show what an action committed; changes nothing'),
  ).action((id, options) => withOperator(options, context, (session) => showAction(session, id)));
  withCommonOptions(
    program
      .command('key <idempotency-key>')
      .description('show what was committed under an idempotency key; changes nothing')
      .addOption(principalOption),
  ).action((key, options) =>
    withOperator(options, context, (session) => showKey(session, key, options.principal)),
  );
  withCommonOptions(
    program
      .command('why <id>')
      .description(
        'say what stands in the way of an event, a model, an action or something of the application',
      ),
  ).action((id, options) => withOperator(options, context, (session) => explain(session, id)));
  withCommonOptions(
    program
      .command('audit')
      .description('list what operators have changed, the newest first of each database')
      .addOption(limitOption)
      .addOption(afterOption),
  ).action((options) =>
    withOperator(options, context, async (session) => {
      const answer = await readAll(options, (page) => session.operator.audit(page));
      return writeAnswer(session, answer, {
        head: ['begun', 'shards', 'change', 'by', 'reason', 'outcome', 'events', 'what', 'id'],
        rows: ({ begunDate, shards, operation, actor, reason, ended, target, changeId }) => [
          [
            cellOf(begunDate),
            shards.join(', '),
            operation,
            actor,
            reason,
            ended === undefined
              ? 'not ended'
              : [ended.outcome, ended.errorCode, ended.errorText].filter(Boolean).join(': '),
            cellOf(ended?.count),
            cellOf(target),
            changeId,
          ],
        ],
        none: 'No changes.',
      });
    }),
  );
};

/** How many events are read at a time. */
const pageSize = 1_000;

async function verify({ operator, terminal, format, fail }: OperatorSession, id: string): Promise<ExitCode> {
  const check = new HistoryCheck();
  const failures: OperatorFailure[] = [];
  let after: string | undefined;
  do {
    const page = await operator.model(id, { limit: pageSize, after });
    for (const item of page.items) check.add(item);
    failures.push(...page.failures);
    // Without the rest of a database nothing is proved.
    after = page.failures.length > 0 ? undefined : page.next;
    terminal.progress(`${check.count} events …`);
  } while (after !== undefined);
  check.end();
  const { count, firstVersion, faults } = check;
  if (format === 'json') terminal.writeJson({ id, count, firstVersion, faults, failures });
  else {
    for (const fault of faults) terminal.write(plain(fault));
    const from = count === 0 ? '' : `, from version ${firstVersion}`;
    terminal.write(
      `${count} events${from}: ${faults.length === 0 ? 'no fault' : `${faults.length} faults`}.`,
    );
  }
  const code = fail(failures);
  return faults.length > 0 || (count === 0 && code === exitCode.fine) ? exitCode.found : code;
}

async function showAction(session: OperatorSession, id: string): Promise<ExitCode> {
  const { operator, terminal, format, fail } = session;
  const answer = await operator.action(id);
  if (format === 'json') terminal.writeJson(answer);
  else if (answer.items.length === 0) terminal.write(`Nothing is known of the action ${plain(id)}.`);
  else
    for (const { events, shards, ...action } of answer.items) {
      const fields = {
        shards: shards.join(', '),
        action: `${action.actionName} ${action.actionId}`,
        principal: action.principal,
        namespace: action.namespace,
        started: action.startedDate,
        committed: action.createdDate,
        params: action.actionParams,
      };
      terminal.write(`${fieldLines(fields)}\n`);
      const rows = events.flatMap((event) => eventColumns.rows({ ...event, shards }));
      terminal.write(rows.length === 0 ? eventColumns.none : table(eventColumns.head, rows));
    }
  fail(answer.failures);
  return codeOf(answer);
}

async function showKey(session: OperatorSession, key: string, principal?: string): Promise<ExitCode> {
  const { operator, terminal, format, fail } = session;
  const answer = await operator.idempotencyKey(key, principal);
  if (format === 'json') terminal.writeJson(answer);
  else if (answer.items.length === 0) terminal.write(`Nothing was committed under the key ${plain(key)}.`);
  else
    for (const { action, shards, ...found } of answer.items) {
      const fields = {
        shards: shards.join(', '),
        key: found.key,
        principal: found.principal,
        namespace: found.namespace,
        action: `${found.actionName} ${found.actionId}`,
        committed: found.createdDate,
        expires: found.expiresDate,
        event: found.source,
      };
      terminal.write(`${fieldLines(fields)}\n`);
      const rows = (action?.events ?? []).flatMap((event) => eventColumns.rows({ ...event, shards }));
      terminal.write(rows.length === 0 ? eventColumns.none : table(eventColumns.head, rows));
    }
  fail(answer.failures);
  return codeOf(answer);
}

async function explain({ operator, terminal, format, fail }: OperatorSession, id: string): Promise<ExitCode> {
  const answer = await operator.why(id);
  if (format === 'json') terminal.writeJson(answer);
  else {
    for (const sentence of answer.sentences) terminal.write(plain(sentence));
    if (answer.sides.length > 0) terminal.write(`\n${besideEachOther(answer.sides)}`);
  }
  const code = fail([...answer.failures, ...failuresOf(answer)]);
  return answer.kind === 'unknown' && code === exitCode.fine ? exitCode.found : code;
}

/** The shards of an explanation that did not answer. */
function failuresOf({ sides }: WhyAnswer): readonly OperatorFailure[] {
  return sides.flatMap(({ shard, failure }) =>
    failure === undefined ? [] : [{ shards: [shard], code: failure }],
  );
}

/** What lies on the shards concerned: a column for each shard, and a line for each field. */
function besideEachOther(places: readonly ExplanationSide[]): string {
  const names = [...new Set(places.flatMap(({ fields = {} }) => Object.keys(fields)))];
  const state = places.map(({ fields, failure }) => failure ?? (fields === undefined ? 'has nothing' : ''));
  const rows = [
    ['shard', ...places.map(({ shard }) => shard)],
    ...(state.some((text) => text !== '') ? [['state', ...state]] : []),
    ...names.map((name) => [
      name,
      ...places.map(({ fields }) => (fields === undefined ? '' : cellOf(fields[name]))),
    ]),
  ];
  return table(['', ...places.map(({ title }) => title)], rows);
}

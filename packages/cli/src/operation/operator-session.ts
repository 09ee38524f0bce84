import { type FrameworkConfig, FrameworkError } from '@framework/core';
import type { DatabaseConfig, DatabaseDelivery, ShardingConfig } from '@framework/core/adapter';
import {
  type OperatedApplication,
  type OperatedRelay,
  Operator,
  type OperatorFailure,
} from '@framework/operator';
import { setTimeout as delay } from 'node:timers/promises';

import { type CommonOptions, type CommandContext, fileOf, formatOf } from '../command-group.js';
import { type ExitCode, UsageError, exitCode } from '../exit-code.js';
import { loadConfig } from '../loaded-config.js';
import { type OutputFormat, type Terminal, plain } from '../terminal.js';
import { openApplication } from './open-application.js';

/** How long closing waits for connections to databases that do not answer, in milliseconds. */
const closingMaxMs = 500;
/** How many connections a command has to each database. */
const connectionsMax = 4;
/** The errors that say what is wrong with the command. */
const ofCommand: ReadonlySet<string> = new Set([
  'unknown-handler',
  'operator-request',
  'invalid-cursor',
  'invalid-page-limit',
]);

/** What one command works with: the operator of all databases, and the application as its module describes it. */
export interface OperatorSession {
  readonly config: FrameworkConfig;
  readonly application: OperatedApplication;
  readonly operator: Operator;
  readonly terminal: Terminal;
  readonly format: OutputFormat;
  /**
   * Tells on standard error what is missing, once for each database and code.
   *
   * @returns `failed` when something is missing
   */
  readonly fail: (failures: readonly OperatorFailure[]) => ExitCode;
}

/**
 * Opens the databases for one command, and closes them after it. Each database has `--timeout-ms` to answer; one that does not costs its
 * part of the answer, without further waiting.
 *
 * @throws UsageError when the operator says that the command is wrong
 */
export async function withOperator(
  options: CommonOptions,
  { environment, terminal, end }: CommandContext,
  work: (session: OperatorSession) => Promise<ExitCode>,
): Promise<void> {
  const file = fileOf(options);
  const loaded = await loadConfig(file, environment, terminal);
  const config = { ...loaded, sharding: limited(loaded.sharding, options.timeoutMs) };
  const application = await openApplication(config, file, terminal);
  const { databases, extensions } = application;
  try {
    const reasons = await firstAnswers(databases.deliveries(), options.timeoutMs);
    const operator = new Operator({ databases, extensions, relays: relaysOf(config.relay) });
    const fail = failureWriter(terminal, reasons);
    end(await work({ config, application, operator, terminal, format: formatOf(options, terminal), fail }));
  } catch (error) {
    const known = FrameworkError.find(error);
    if (known !== undefined && ofCommand.has(known.code)) throw new UsageError(known.message);
    throw error;
  } finally {
    await Promise.race([databases.close(), delay(closingMaxMs, undefined, { ref: false })]);
  }
}

/** The databases with few connections, none of which waits for longer than the command may. */
function limited(sharding: ShardingConfig, timeoutMs: number): ShardingConfig {
  const limit = (config: DatabaseConfig): DatabaseConfig => ({
    ...config,
    poolMax: Math.min(config.poolMax, connectionsMax),
    idleMin: 0,
    acquisitionTimeoutMs: timeoutMs,
    statementTimeoutMs: timeoutMs,
  });
  const members = sharding.members.map((member) => ({
    ...member,
    databases: new Map([...member.databases].map(([name, config]) => [name, limit(config)])),
  }));
  return { ...sharding, members };
}

/**
 * Waits until each database is ready, has said why it is not, or has not answered in time.
 *
 * @returns why databases are not ready, by their first shard
 */
async function firstAnswers(
  deliveries: readonly DatabaseDelivery[],
  timeoutMs: number,
): Promise<ReadonlyMap<string, string>> {
  const answers = await Promise.all(
    deliveries.map(async (database) => {
      const key = keyOf(database.shards.map(({ group, member }) => `${group}/${member}`));
      return [key, await firstAnswer(database, timeoutMs)] as const;
    }),
  );
  return new Map(answers.filter((answer): answer is [string, string] => answer[1] !== undefined));
}

/** Why a database is not ready; `undefined` when it is. */
async function firstAnswer(database: DatabaseDelivery, timeoutMs: number): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const late = setTimeout(() => resolve(`it has not answered within ${timeoutMs} ms`), timeoutMs);
  database
    .ready(({ message }) => resolve(message))
    .then(() => resolve(undefined))
    // It is closed: nobody waits any more.
    .catch(() => resolve(undefined));
  return promise.finally(() => clearTimeout(late));
}

function keyOf(shards: readonly string[]): string {
  return shards[0] ?? '';
}

function failureWriter(terminal: Terminal, reasons: ReadonlyMap<string, string>): OperatorSession['fail'] {
  const told = new Set<string>();
  return (failures) => {
    for (const { shards, code, detail } of failures) {
      const where = shards.length > 0 ? shards.join(', ') : 'the application';
      const why = detail ?? (code === 'shard-unavailable' ? reasons.get(keyOf(shards)) : undefined);
      const text = `error: ${where}: ${code}${why === undefined ? '' : `: ${plain(why)}`}`;
      if (!told.has(text)) terminal.fail(text);
      told.add(text);
    }
    return failures.length > 0 ? exitCode.failed : exitCode.fine;
  };
}

/** The relays of a configuration by their names, as far as it is valid: others read this section. */
export function relaysOf(sections: FrameworkConfig['relay']): readonly OperatedRelay[] {
  return sections.flatMap(({ name, aliases }) =>
    isText(name) ? [{ name, aliases: Array.isArray(aliases) ? aliases.filter(isText) : [] }] : [],
  );
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

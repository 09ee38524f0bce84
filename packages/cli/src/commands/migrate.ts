import type { FrameworkConfig } from '@framework/core';
import { migrateShards } from '@framework/drizzle-adapter';
import { type SchemaState, notReadyError, schemaState } from '@framework/drizzle-adapter/operation';

import {
  type CommandContext,
  type CommandGroup,
  configOption,
  fileOf,
  formatOf,
  jsonOption,
  migrationsOption,
  outputOption,
  timeoutOption,
} from '../command-group.js';
import { onConnection } from '../connect.js';
import { type ExitCode, exitCode } from '../exit-code.js';
import { type ListedDatabase, databasesOf, loadConfig } from '../loaded-config.js';
import { type OutputFormat, type Terminal, plain, table } from '../terminal.js';
import { Option } from '@commander-js/extra-typings';

const dryRunOption = new Option('--dry-run', 'only say what would be applied, as plan does').env(
  'FRAMEWORK_CLI_DRY_RUN',
);

/** `framework migrate`: compares the schemas of the databases with this release, and applies what they lack. */
export const migrate: CommandGroup = (program, context) => {
  const { environment, terminal, end } = context;
  const group = program
    .command('migrate')
    .description('compare the schemas with this release, and migrate them');
  group
    .command('status')
    .description('say how the schema of each database differs from this release; changes nothing')
    .addOption(configOption)
    .addOption(migrationsOption)
    .addOption(timeoutOption)
    .addOption(outputOption)
    .addOption(jsonOption)
    .action(async (options) => {
      const config = await loadConfig(fileOf(options), environment, terminal);
      const states = await statesOf(config, options, terminal);
      writeStates(states, formatOf(options, terminal), terminal);
      end(
        codeOf(states, ({ pending, unknown, edited }) => pending.length + unknown.length + edited.length > 0),
      );
    });
  group
    .command('plan')
    .description('print the statements that up would execute, as a script with comments; changes nothing')
    .addOption(configOption)
    .addOption(migrationsOption)
    .addOption(timeoutOption)
    .addOption(outputOption)
    .addOption(jsonOption)
    .action((options) => plan(options, context));
  group
    .command('up')
    .description('apply the missing migrations to the database of every primary-config')
    .addOption(configOption)
    .addOption(migrationsOption)
    .addOption(dryRunOption)
    .addOption(timeoutOption)
    .addOption(outputOption)
    .addOption(jsonOption)
    .action((options) => (options.dryRun === true ? plan(options, context) : up(options, context)));
};

interface Values {
  readonly config?: string | undefined;
  readonly migrations?: string | undefined;
  readonly timeoutMs: number;
  readonly output?: OutputFormat | undefined;
  readonly json?: true | undefined;
}

/** A database with its state, or the reason why that is not known. */
interface DatabaseState {
  readonly database: string;
  readonly state: SchemaState | null;
  readonly reason: string | null;
}

async function statesOf(
  config: FrameworkConfig,
  { timeoutMs, migrations }: Values,
  terminal: Terminal,
): Promise<readonly DatabaseState[]> {
  const states = primariesOf(config).map(async ({ config: database, where }): Promise<DatabaseState> => {
    terminal.progress(`querying ${where} …`);
    try {
      const state = await onConnection(database, timeoutMs, (client) => schemaState(client, migrations));
      return { database: where, state, reason: null };
    } catch (error) {
      return { database: where, state: null, reason: notReadyError(error, database).message };
    }
  });
  return Promise.all(states);
}

function primariesOf(config: FrameworkConfig): readonly ListedDatabase[] {
  return databasesOf(config).filter(({ isPrimary }) => isPrimary);
}

function codeOf(states: readonly DatabaseState[], isFound: (state: SchemaState) => boolean): ExitCode {
  if (states.some(({ state }) => state === null)) return exitCode.failed;
  return states.some(({ state }) => state !== null && isFound(state)) ? exitCode.found : exitCode.fine;
}

function writeStates(states: readonly DatabaseState[], format: OutputFormat, terminal: Terminal): void {
  const databases = states.map(({ database, state, reason }) => ({
    database,
    reason,
    pending: state?.pending.map(nameOf) ?? null,
    unknown: state?.unknown ?? null,
    edited: state?.edited ?? null,
  }));
  if (format === 'json') return terminal.writeJson({ databases });
  const rows = databases.map(({ database, reason, pending, unknown, edited }) => [
    database,
    reason ?? listed(pending),
    listed(unknown),
    listed(edited),
  ]);
  terminal.write(table(['database', 'pending', 'of a newer release', 'edited'], rows));
}

function listed(names: readonly string[] | null): string {
  if (names === null) return '-';
  return names.length === 0 ? 'none' : names.join(', ');
}

function nameOf({ name, owner }: SchemaState['pending'][number]): string {
  return `${name} of the ${owner}`;
}

async function plan(options: Values, { environment, terminal, end }: CommandContext): Promise<void> {
  const config = await loadConfig(fileOf(options), environment, terminal);
  const states = await statesOf(config, options, terminal);
  if (formatOf(options, terminal) === 'json') {
    const databases = states.map(({ database, state, reason }) => ({
      database,
      reason,
      pending: state?.pending ?? null,
    }));
    terminal.writeJson({ databases });
  } else for (const each of states) terminal.write(scriptOf(each));
  end(codeOf(states, () => false));
}

function scriptOf({ database, state, reason }: DatabaseState): string {
  // On one line, because what follows would be a statement of the script.
  if (state === null) return `-- ${plain(`${database}: not reachable: ${reason}`)}`;
  if (state.pending.length === 0) return `-- ${plain(database)}: nothing to apply`;
  const parts = state.pending.map((each) => {
    const statements = each.statements.map((statement) => `${statement.trim().replace(/;$/, '')};`);
    return [`-- ${plain(nameOf(each))}`, ...statements].join('\n');
  });
  return [`-- ${plain(database)}`, ...parts].join('\n');
}

/** What was done to one database. */
interface Migrated {
  readonly database: string;
  readonly applied: readonly string[] | null;
  readonly reason: string | null;
}

async function up(options: Values, { environment, terminal, end }: CommandContext): Promise<void> {
  const config = await loadConfig(fileOf(options), environment, terminal);
  const done: Migrated[] = [];
  let isBroken = false;
  for (const { config: database, where, members } of primariesOf(config)) {
    if (isBroken) {
      done.push({ database: where, applied: null, reason: 'not tried, because a migration failed before' });
      continue;
    }
    terminal.progress(`migrating ${where} …`);
    try {
      // Migrations wait longer for a server that does not answer than the command may.
      await onConnection(database, options.timeoutMs, (client) => client.query('select 1'));
      const migrated = await migrateShards({ ...config.sharding, members }, options.migrations);
      done.push({ database: where, applied: migrated.flatMap(({ applied }) => applied), reason: null });
    } catch (error) {
      const { kind, message } = notReadyError(error, database, true);
      // A database that is down says nothing about the others, but a migration that fails would fail there, too.
      isBroken = kind === 'migration-failed';
      done.push({ database: where, applied: null, reason: message });
    }
  }
  if (formatOf(options, terminal) === 'json') terminal.writeJson({ databases: done });
  else {
    const rows = done.map(({ database, applied, reason }) => [database, reason ?? listed(applied)]);
    terminal.write(table(['database', 'applied'], rows));
  }
  end(done.some(({ applied }) => applied === null) ? exitCode.failed : exitCode.fine);
}

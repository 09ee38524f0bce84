import {
  type Command,
  type CommandUnknownOpts,
  InvalidArgumentError,
  Option,
  type OptionValues,
} from '@commander-js/extra-typings';
import { z } from 'zod';

import { type ExitCode, UsageError } from './exit-code.js';
import type { OutputFormat, Terminal } from './terminal.js';

/** What commands work with. */
export interface CommandContext {
  readonly environment: NodeJS.ProcessEnv;
  readonly terminal: Terminal;
  /** Says how the process ends, once the command is done. */
  readonly end: (code: ExitCode) => void;
}

/** Adds the commands of one subject to the program. Each group has one file in `commands`, and is listed in `program.ts`. */
export type CommandGroup = (program: Command, context: CommandContext) => void;

/** Every command has these four options. */
export const configOption = new Option('--config <file>', 'the configuration file of the service').env(
  'FRAMEWORK_CONFIG',
);

export const outputOption = new Option(
  '--output <format>',
  'how results are written; default: table on a terminal',
)
  .choices(['table', 'json'] as const)
  .env('FRAMEWORK_CLI_OUTPUT');

export const jsonOption = new Option('--json', 'the same as --output json').env('FRAMEWORK_CLI_JSON');

export const timeoutOption = new Option(
  '--timeout-ms <ms>',
  'how long connecting, and each statement, may take',
)
  .argParser(wholeNumber(1, 600_000))
  .default(5_000)
  .env('FRAMEWORK_CLI_TIMEOUT_MS');

/** The values of the four options that every command has. */
export interface CommonOptions {
  readonly config?: string | undefined;
  readonly output?: OutputFormat | undefined;
  readonly json?: true | undefined;
  readonly timeoutMs: number;
}

/** Adds the four options that every command has. */
export function withCommonOptions<Args extends unknown[], Values extends OptionValues>(
  command: Command<Args, Values>,
): Command<Args, Values & CommonOptions> {
  return command
    .addOption(configOption)
    .addOption(timeoutOption)
    .addOption(outputOption)
    .addOption(jsonOption) as unknown as Command<Args, Values & CommonOptions>;
}

/**
 * Reads the variables of options without a value, of which Commander only sees that they are set: `FRAMEWORK_CLI_YES=false` must not
 * mean yes. An empty one counts as unset.
 *
 * @throws UsageError when one is neither true nor false
 */
export function readSwitches(command: CommandUnknownOpts): void {
  for (const option of command.options) {
    const name = option.attributeName();
    if (option.envVar === undefined || !option.isBoolean()) continue;
    if (command.getOptionValueSource(name) !== 'env') continue;
    const text = process.env[option.envVar] ?? '';
    if (/^(true|yes|on|1)$/i.test(text)) continue;
    if (!/^(false|no|off|0)?$/i.test(text)) throw new UsageError(`${option.envVar} must be true or false`);
    command.setOptionValueWithSource(name, undefined, 'default');
  }
}

/** The application's migrations, for the commands that compare or apply them. */
export const migrationsOption = new Option(
  '--migrations <folder>',
  "the application's migrations; without it, only those of the framework are known",
).env('FRAMEWORK_CLI_MIGRATIONS');

/** Parses an option that is a whole number. */
export function wholeNumber(min: number, max: number): (value: string) => number {
  return (value) => {
    const number = /^\d{1,15}$/.test(value) ? Number(value) : NaN;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

/** @throws UsageError when no configuration file is named */
export function fileOf({ config }: { readonly config?: string | undefined }): string {
  if (config !== undefined && config !== '') return config;
  throw new UsageError('no configuration file is named: use --config <file>, or set FRAMEWORK_CONFIG');
}

/** How a command writes its results. */
export function formatOf(
  { output, json }: { readonly output?: OutputFormat | undefined; readonly json?: true | undefined },
  terminal: Terminal,
): OutputFormat {
  return json === true ? 'json' : (output ?? terminal.defaultFormat);
}

/** Parses an option that is a point in time. */
export function pointInTime(value: string): Date {
  const [day = ''] = /^\d{4}-\d\d-\d\d(?=$|T.*(Z|[+-]\d\d:?\d\d)$)/.exec(value) ?? [];
  const date = new Date(value);
  // `Date` would take the 30th of February for the 2nd of March.
  if (z.iso.date().safeParse(day).success && !Number.isNaN(date.getTime())) return date;
  throw new InvalidArgumentError('It must be a date or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z.');
}

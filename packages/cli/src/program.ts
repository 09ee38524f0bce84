import { Command, CommanderError } from '@commander-js/extra-typings';
import { ConfigurationError } from '@framework/core';

import { type CommandGroup, readSwitches } from './command-group.js';
import { application } from './commands/application.js';
import { consoleCommand } from './commands/console.js';
import { consumers } from './commands/consumers.js';
import { deadLetters } from './commands/dead-letters.js';
import { doctor } from './commands/doctor.js';
import { events } from './commands/events.js';
import { lookUps } from './commands/look-ups.js';
import { migrate } from './commands/migrate.js';
import { shards } from './commands/shards.js';
import { type ExitCode, UsageError, exitCode } from './exit-code.js';
import { configurationText } from './loaded-config.js';
import type { Terminal } from './terminal.js';

const groups: readonly CommandGroup[] = [
  doctor,
  migrate,
  shards,
  consumers,
  deadLetters,
  events,
  lookUps,
  application,
  consoleCommand,
];

/** Runs one command of an operator, and returns how the process ends. Writes nothing but to the terminal. */
export async function runProgram(
  words: readonly string[],
  environment: NodeJS.ProcessEnv,
  terminal: Terminal,
): Promise<ExitCode> {
  let code: ExitCode = exitCode.fine;
  const program = new Command('framework')
    .description('The command line of an operator')
    .showHelpAfterError('(--help lists the options)')
    .exitOverride()
    .hook('preAction', (_program, command) => readSwitches(command))
    .configureOutput({
      writeOut: (text) => terminal.write(text.trimEnd()),
      writeErr: (text) => terminal.fail(text.trimEnd()),
    });
  for (const group of groups) group(program, { environment, terminal, end: (ended) => (code = ended) });
  try {
    await program.parseAsync(words, { from: 'user' });
    return code;
  } catch (error) {
    // Its text has been written already. Help that was asked for ends with 0.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCode.fine : exitCode.usage;
    if (error instanceof UsageError) {
      terminal.fail(`error: ${error.message}`);
      return exitCode.usage;
    }
    terminal.fail(
      `error: ${error instanceof ConfigurationError ? configurationText(error) : errorText(error)}`,
    );
    return exitCode.failed;
  }
}

/** What is wrong, in one text without the stack. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

#!/usr/bin/env node
import { exitCode } from './exit-code.js';
import { errorText, runProgram } from './program.js';
import { Terminal } from './terminal.js';

const terminal = new Terminal(process);
// What the application's module throws in the background would be shown by Node, with its stack and whatever secrets it quotes.
process.on('uncaughtException', (error) => {
  terminal.fail(`error: ${errorText(error)}`);
  process.exit(exitCode.failed);
});
const code = await runProgram(process.argv.slice(2), process.env, terminal);
await terminal.flush();
// A timer or a connection of the application's module must not keep a command that is over.
process.exit(code);

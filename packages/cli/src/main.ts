#!/usr/bin/env node
import { createWriteStream, fstatSync } from 'node:fs';

import { exitCode } from './exit-code.js';
import { isAboutTimeout } from './operation/open-application.js';
import { errorText, runProgram } from './program.js';
import { Terminal } from './terminal.js';

// For a file, Node's own stream takes a part that a full disk has taken for the whole.
const stdout = fstatSync(1).isFile() ? createWriteStream('', { fd: 1, autoClose: false }) : process.stdout;
const terminal = new Terminal({
  // Not opened unless a person is asked.
  get stdin() {
    return process.stdin;
  },
  stdout,
  stderr: process.stderr,
});
// What the application's module throws in the background would be shown by Node, with its stack and whatever secrets it quotes.
process.on('uncaughtException', (error) => {
  terminal.fail(`error: ${errorText(error)}`);
  process.exit(exitCode.failed);
});
// Node would print what the application's module warns of as it is.
process.removeAllListeners('warning');
process.on('warning', (warning: NodeJS.ErrnoException) => {
  if (!isAboutTimeout(warning.code)) terminal.progress(`warning: ${warning.message}`);
});
const code = await runProgram(process.argv.slice(2), process.env, terminal);
const unwritten = await terminal.flush();
if (unwritten !== undefined) terminal.fail(`error: the output could not be written: ${errorText(unwritten)}`);
// A timer or a connection of the application's module must not keep a command that is over.
process.exit(unwritten === undefined ? code : exitCode.failed);

#!/usr/bin/env node
import { runProgram } from './program.js';

// A reader that closes the pipe, such as head, is no failure.
process.stdout.on('error', () => undefined);
process.exitCode = await runProgram(process.argv.slice(2), process.env, process);

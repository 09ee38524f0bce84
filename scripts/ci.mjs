import { spawn } from 'node:child_process';

import { Tally } from './tally.mjs';
import { root, tool } from './workspace.mjs';

// What CI runs: both commands of the README and its example in a consumer's hands, with one tally over them.
const tally = new Tally();
tally.add(await outcomeOf('npm', ['test']));
tally.add(await outcomeOf(process.execPath, ['scripts/check-start.mjs']));
tally.add(await outcomeOf(tool('node'), ['scripts/check-consumer.mjs']));
tally.close();

/** Runs the command, shows what it prints, and reads the tally that it ends with. */
async function outcomeOf(command, args) {
  let output = '';
  const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
  child.stdout.on('data', (chunk) => {
    process.stdout.write(chunk);
    output = (output + chunk).slice(-1_000);
  });
  const code = await new Promise((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('close', resolve);
  });
  const outcome = Tally.fromOutput(output) ?? new Tally();
  if (code !== 0 && outcome.failed === 0) {
    console.log(`✗ ${[command, ...args].join(' ')} ended with ${code}`);
    outcome.failed = 1;
  }
  return outcome;
}

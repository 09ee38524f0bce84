import { globSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';

import { alone } from './alone.mjs';
import { run } from './run.mjs';
import { printResult, resultFile, runTests } from './run-tests.mjs';
import { root, tool } from './workspace.mjs';

// Runs `npm test`: every check of the workspace and the tests of every package. Turbo repeats only those whose files have changed.
// With arguments, it passes these to vitest instead. The last line counts checks and tests.
const checks = ['format:check', 'lint', 'knip', 'docs', 'typecheck', 'build', 'api'];
const args = process.argv.slice(2);

// Options alone, such as --changed, choose among the tests of this gate.
const ofThisGate = ['--project=!ci', '--project=!e2e', '--project=!long'];
const isOpen = args.every((word) => word.startsWith('-') && !word.startsWith('--project'));

if (args.length > 0) printResult([await runTests(isOpen ? [...args, ...ofThisGate] : args)]);
else {
  const checked = await alone(() => runTasks(checks, ['--output-logs=errors-only', '--log-order=grouped']));
  for (const file of resultFiles()) rmSync(file);
  // One package after the other: the tests of one use all cores.
  const tested = await runTasks(['test', 'test:house'], ['--output-logs=new-only', '--concurrency=1']);
  const results = resultFiles().map((file) => JSON.parse(readFileSync(file, 'utf8')));
  // Packages with failed tests have reported these.
  const isReported = results.some(({ failed }) => failed > 0);
  printResult([checked, ...results, { ...tested, passed: 0, ...(isReported && { failed: 0, notes: [] }) }]);
}

function resultFiles() {
  return globSync(`{.,examples,packages/*,apps/*}/${resultFile}`, { cwd: root }).map((file) =>
    join(root, file),
  );
}

async function runTasks(tasks, options) {
  const { code, output } = await run(tool('turbo'), ['run', ...tasks, '--continue', ...options], {
    onOutput: (chunk) => process.stdout.write(chunk),
  });
  const [, passed, total] = /Tasks: +(\d+) successful, (\d+) total/.exec(output) ?? [0, 0, 0];
  const failed = Math.max(Number(total) - Number(passed), Number(code !== 0));
  const names = /Failed: +(.+)/.exec(output)?.[1] ?? 'turbo ended with an error';
  return {
    passed: Number(passed),
    failed,
    skipped: 0,
    notes: failed > 0 ? [`✗ ${names} (for the format: npx prettier --write .)`] : [],
  };
}

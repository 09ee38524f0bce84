import { relative } from 'node:path';

import { createVitest, parseCLI } from 'vitest/node';

import { alone } from './alone.mjs';
import { run } from './run.mjs';
import { root, tool } from './workspace.mjs';

// Runs `npm test`: every check of the workspace and all tests. With arguments, it only runs vitest with these arguments. The last line counts both.
const checks = ['format:check', 'lint', 'knip', 'docs', 'typecheck', 'build', 'check-package', 'api'];
/** If more files than these fail, a busy machine is not the reason. */
const filesAgainMax = 3;

const testsOf = (module) => [...module.children.allTests()];
const args = process.argv.slice(2);
const counts = { passed: 0, failed: 0, skipped: 0 };
const notes = [];
if (args.length === 0) await runChecks();
await runTests(args.length === 0 ? ['--project=!e2e', '--project=!*-grouped'] : args);
// A machine of CI that is too slow leaves out the second pass; everybody else runs all tests.
const hasTime = performance.now() < Number(process.env['SECOND_PASS_WITHIN_MINUTES'] ?? Infinity) * 60_000;
if (args.length === 0 && hasTime) await runTests(['--project=*-grouped']);
else if (args.length === 0) notes.push('~ There was no time left for the tests with group commit');
if (counts.passed === 0 && counts.failed === 0) counts.failed = 1;
for (const note of notes) console.log(note);
const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : '';
console.log(`${counts.passed} passed, ${counts.failed} failed${skipped}`);
process.exit(counts.failed > 0 ? 1 : 0);

/** Each check of each package counts once; checks without changes are not repeated. */
async function runChecks() {
  const options = ['--continue', '--output-logs=errors-only', '--log-order=grouped'];
  const { code, output } = await alone(() => run(tool('turbo'), ['run', ...checks, ...options]));
  console.log(output.trimEnd());
  const [, passed, total] = /Tasks: +(\d+) successful, (\d+) total/.exec(output) ?? [];
  counts.passed += Number(passed ?? 0);
  counts.failed += Number(total ?? 0) - Number(passed ?? 0) || Number(code !== 0);
  const failed = /Failed: +(.+)/.exec(output)?.[1];
  if (code !== 0)
    notes.push(`✗ checks: ${failed ?? 'turbo ended with an error'} (format: npx prettier --write .)`);
}

/**
 * Hundreds of files run in parallel, and some measure real time or kill real servers. So if only a few files fail, they run
 * again, alone: a test that passes then counts as passed, and is reported. A failure that names a seed is a finding, and stays
 * failed.
 */
async function runTests(words) {
  const { filter, options } = parseCLI(['vitest', 'run', ...words]);
  const vitest = await createVitest('test', { ...options, watch: false });
  await vitest.start(filter);
  const first = failuresOf(vitest);
  const files = new Set(first.map(({ module }) => module));
  const isFinding = first.some(({ module, key, text }) => module === undefined || /seed/i.test(key + text));
  if (!isFinding && filter.length === 0 && files.size <= filesAgainMax)
    for (const file of files) await vitest.runTestSpecifications([file.toTestSpecification()]);
  const last = failuresOf(vitest);
  for (const { key } of first)
    if (last.every((failure) => failure.key !== key))
      notes.push(`~ failed beside others, passed alone: ${key}`);
  for (const { key, text } of last) notes.push(`✗ ${key}: ${text.split('\n')[0]}`);
  counts.failed += last.length;
  for (const state of vitest.state
    .getTestModules()
    .flatMap(testsOf)
    .map((test) => test.result().state))
    if (state !== 'failed') counts[state === 'passed' ? 'passed' : 'skipped']++;
  await vitest.close();
}

/** What failed: tests, files that could not be completed, and errors outside of tests, which have no file. */
function failuresOf(vitest) {
  const failures = vitest.state
    .getUnhandledErrors()
    // What comes from a worker has no prototype, and so no text of its own.
    .map((error) => ({ key: 'outside of tests', text: `${error.name}: ${error.message}` }));
  for (const module of vitest.state.getTestModules().filter((one) => !one.ok())) {
    const file = `${module.project.name} › ${relative(root, module.moduleId)}`;
    const failed = testsOf(module).filter((test) => test.result().state === 'failed');
    if (failed.length === 0) failures.push({ module, key: file, text: 'the file could not be run' });
    for (const test of failed)
      failures.push({
        module,
        key: `${file} › ${test.fullName}`,
        text: test
          .result()
          .errors.map(({ message }) => message)
          .join(),
      });
  }
  return failures;
}

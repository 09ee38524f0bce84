import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, relative } from 'node:path';

import { createVitest, parseCLI } from 'vitest/node';

import { root } from './workspace.mjs';

/** The file for the result of the tests, in the folder in which they were started. */
export const resultFile = 'node_modules/.cache/test-result.json';

/** Full names of tests that may fail once and then pass, each with a reason and the date on which that was accepted. */
const acceptedFlaky = {};

/** Runs vitest with these arguments; returns `{ passed, failed, skipped, notes }`, and writes it to the file. */
export async function runTests(words) {
  const { filter, options } = parseCLI(['vitest', 'run', ...words]);
  const vitest = await createVitest('test', { ...options, root, watch: false });
  await vitest.start(filter);
  const modules = vitest.state.getTestModules();
  const problems = [
    // An error from a worker has no prototype, and so no text of its own.
    ...vitest.state.getUnhandledErrors().map(({ name, message }) => `outside of tests: ${name}: ${message}`),
    ...modules.flatMap(problemsOf),
  ];
  const states = modules.flatMap((module) => testsOf(module).map((test) => test.result().state));
  const result = {
    passed: states.filter((state) => state === 'passed').length,
    failed: problems.length,
    skipped: states.filter((state) => state === 'skipped').length,
    notes: problems.map((problem) => `✗ ${problem}`),
  };
  await vitest.close();
  mkdirSync(dirname(resultFile), { recursive: true });
  writeFileSync(resultFile, JSON.stringify(result));
  return result;
}

function testsOf(module) {
  return [...module.children.allTests()];
}

/** The failures of a file, and its tests that passed only on the second try. */
function problemsOf(module) {
  const file = `${module.project.name} › ${relative(root, module.moduleId)}`;
  const tests = testsOf(module).map((test) => ({
    key: `${file} › ${test.fullName}`,
    state: test.result().state,
    isFlaky: test.diagnostic()?.flaky ?? false,
    errors: test.result().errors ?? [],
  }));
  const failed = tests.filter(({ state }) => state === 'failed');
  const flaky = tests.filter(({ key, isFlaky }) => isFlaky && acceptedFlaky[key] === undefined);
  for (const { errors } of flaky) for (const { stack } of errors) console.error(stack);
  const isBroken = !module.ok() && failed.length === 0;
  return [
    ...(isBroken ? [`${file}: ${module.errors()[0]?.message ?? 'the file cannot be run'}`] : []),
    ...failed.map((test) => `${test.key}: ${textOf(test)}`),
    ...flaky.map((test) => `flaky, passed on the second try: ${test.key}: ${textOf(test)}`),
  ];
}

function textOf({ errors }) {
  return errors.map(({ message }) => message.split('\n')[0]).join('; ');
}

/** Prints what failed and the sum of the counts as the last line; the process ends with 1 if something failed or nothing ran. */
export function printResult(results) {
  for (const { notes } of results) for (const note of notes) console.log(note);
  const sum = (name) => results.reduce((total, result) => total + result[name], 0);
  const [passed, skipped] = [sum('passed'), sum('skipped')];
  const failed = sum('failed') || Number(passed === 0);
  console.log(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`);
  process.exit(failed > 0 ? 1 : 0);
}

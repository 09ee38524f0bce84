import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

import { run } from './run.mjs';
import { root, tool } from './workspace.mjs';

const reportFile = join(root, 'node_modules/.cache/vitest/report.json');
/** More files than these do not fail because the machine was busy. */
const filesAgainMax = 3;

/**
 * Runs vitest with these arguments and counts its tests: `{ passed, failed, skipped, notes }`; the notes name what failed.
 *
 * Hundreds of files run side by side, and some measure real time or kill real servers. So the few files that failed run
 * again, alone: a test that passes then is counted as passed, and noted. What names a seed is a finding, and stays failed.
 */
export async function runVitest(args) {
  const first = await vitest(args);
  const files = [...new Set(first.failures.map(({ file }) => file))];
  const isFinding = first.failures.some(({ test, reason }) => /seed/i.test(test + reason));
  if (files.length === 0 || files.length > filesAgainMax || isFinding || !args.every(isProject))
    return outcomeOf(first, first.failures, []);
  console.log(`\nWhat failed runs again, alone: ${files.join(', ')}`);
  const second = await vitest([...args, '--maxWorkers=1', ...files]);
  // A run that itself breaks proves nothing.
  if (second.passed === 0) return outcomeOf(first, first.failures, []);
  const again = new Set(second.failures.map(keyOf));
  const left = first.failures.filter((failure) => again.has(keyOf(failure)));
  const added = second.failures.filter((failure) => !left.some((one) => keyOf(one) === keyOf(failure)));
  const healed = first.failures.filter((failure) => !again.has(keyOf(failure)));
  return outcomeOf(
    { ...first, passed: first.passed + healed.length - added.length },
    [...left, ...added],
    healed,
  );
}

const isProject = (argument, index, args) => argument === '--project' || args[index - 1] === '--project';
const keyOf = ({ file, test }) => `${file} › ${test}`;

function outcomeOf({ passed, skipped }, failures, healed) {
  return {
    passed,
    failed: failures.length,
    skipped,
    notes: [
      ...healed.map((failure) => `~ failed beside others, passed alone: ${textOf(failure)}`),
      ...failures.map((failure) => `✗ ${textOf(failure)}`),
    ],
  };
}

function textOf(failure) {
  return `${keyOf(failure)}: ${failure.reason.split('\n')[0]}`;
}

/** Runs vitest once: `{ passed, skipped, failures }`, with a failure's file, test and reason. */
async function vitest(args) {
  rmSync(reportFile, { force: true });
  mkdirSync(dirname(reportFile), { recursive: true });
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${reportFile}`];
  // Vitest's own file, run by the workspace's Node: the host's may be too old for it.
  const program = join(root, 'node_modules/vitest/vitest.mjs');
  const { code } = await run(tool('node'), [program, 'run', ...reporters, ...args], { show: true });
  const outcome = readReport();
  // Errors outside of tests, a crash, and a run without tests show in the exit code only.
  if (outcome.failures.length === 0 && (code !== 0 || outcome.passed === 0))
    outcome.failures.push({ file: '(no file)', test: '(no test)', reason: `vitest ended with ${code}` });
  return outcome;
}

function readReport() {
  try {
    const report = JSON.parse(readFileSync(reportFile, 'utf8'));
    return {
      passed: report.numPassedTests,
      skipped: report.numPendingTests + report.numTodoTests,
      failures: report.testResults.flatMap(failuresOf),
    };
  } catch {
    return { passed: 0, skipped: 0, failures: [] };
  }
}

function failuresOf({ name, status, message, assertionResults }) {
  const file = relative(root, name);
  const failures = assertionResults
    .filter((result) => result.status === 'failed')
    .map((result) => ({ file, test: result.fullName, reason: result.failureMessages.join('\n') }));
  // A file that could not be loaded has no results.
  return status === 'failed' && failures.length === 0
    ? [{ file, test: '(no test)', reason: message || 'the file could not be run' }]
    : failures;
}

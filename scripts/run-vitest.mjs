import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { run } from './run.mjs';
import { root, tool } from './workspace.mjs';

const reportFile = join(root, 'node_modules/.cache/vitest/report.json');

/** Runs vitest with these arguments and counts its tests: `{ passed, failed, skipped }`. */
export async function runVitest(args) {
  rmSync(reportFile, { force: true });
  mkdirSync(dirname(reportFile), { recursive: true });
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${reportFile}`];
  // Vitest's own file, run by the workspace's Node: the host's may be too old for it.
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const { code } = await run(tool('node'), [vitest, 'run', ...reporters, ...args], { show: true });
  const counts = readReport();
  // Errors outside of tests, a crash, and a run without tests show in the exit code only.
  if (counts.failed === 0 && (code !== 0 || counts.passed === 0)) counts.failed = 1;
  return counts;
}

function readReport() {
  try {
    const report = JSON.parse(readFileSync(reportFile, 'utf8'));
    const unloaded = report.testResults.filter(
      (file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'),
    );
    return {
      passed: report.numPassedTests,
      failed: report.numFailedTests + unloaded.length,
      skipped: report.numPendingTests + report.numTodoTests,
    };
  } catch {
    return { passed: 0, failed: 0, skipped: 0 };
  }
}

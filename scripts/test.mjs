import { alone } from './alone.mjs';
import { installIfNeeded } from './install.mjs';
import { turbo } from './pnpm.mjs';
import { runVitest } from './run-vitest.mjs';
import { run } from './run.mjs';
import { Tally } from './tally.mjs';
import { members, tool } from './workspace.mjs';

// What `npm test` runs: every check of the workspace, or with arguments vitest alone with these arguments.
const args = process.argv.slice(2);
const tally = new Tally();

const steps = [
  ['format', () => run(tool('prettier'), ['--check', '.']), 'Correct it with: npx prettier --write .'],
  ['lint', () => run(tool('oxlint'), ['--type-aware', '--deny-warnings'])],
  ['unused code and dependencies', () => run(tool('knip'), [])],
  ['documents', () => run(tool('node'), ['scripts/check-docs.mjs'])],
  ['types', () => turbo(['run', 'typecheck'])],
  ['build', () => alone(() => turbo(['run', 'build']))],
  ['names of built classes', () => run(tool('node'), ['scripts/check-class-names.mjs'])],
  ...members
    .filter((member) => member.startsWith('packages/'))
    .map((member) => [
      `package ${member}`,
      () => run(tool('publint'), ['--strict', '--pack', 'npm', member]),
    ]),
];

if (!(await installIfNeeded())) {
  tally.add({ failed: 1 });
} else {
  if (args.length === 0) for (const step of steps) await check(step);
  tally.add(await runVitest(args));
}
tally.close();

async function check([title, perform, notification]) {
  const startedAtMs = performance.now();
  const { code, output } = await perform();
  const seconds = ((performance.now() - startedAtMs) / 1_000).toFixed(1);
  console.log(`${code === 0 ? '✓' : '✗'} ${title} (${seconds} s)`);
  if (code !== 0) console.log([output.trimEnd(), notification].filter(Boolean).join('\n'));
  tally.add(code === 0 ? { passed: 1 } : { failed: 1 });
}

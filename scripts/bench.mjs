import { installIfNeeded } from './install.mjs';
import { turbo } from './pnpm.mjs';
import { run } from './run.mjs';
import { tool } from './workspace.mjs';

// What `npm run bench` runs: installs and builds when needed, then the benchmarks with these arguments.
const benchFile = 'packages/bench/dist/main.js';

if ((await installIfNeeded()) && (await build())) {
  const args = ['--enable-source-maps', benchFile, ...process.argv.slice(2)];
  const { code } = await run(tool('node'), args, { show: true });
  process.exitCode = code;
} else {
  process.exitCode = 1;
}

/** Builds the benchmarks, the service and what they need; what has not changed is kept. Tells whether they are there. */
async function build() {
  const { code, output } = await turbo(['run', 'build', '--filter=@framework/bench...']);
  if (code === 0) return true;
  console.error(output);
  console.error('Building failed (see above). Correct the first error that is named and try again.');
  return false;
}

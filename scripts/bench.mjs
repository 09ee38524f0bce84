import { alone } from './alone.mjs';
import { buildOrExplain } from './build.mjs';
import { installIfNeeded } from './install.mjs';
import { run } from './run.mjs';
import { tool } from './workspace.mjs';

// What `npm run bench` runs: installs and builds when needed, then the benchmarks with these arguments.
const benchFile = 'packages/bench/dist/main.js';

if ((await installIfNeeded()) && (await alone(() => buildOrExplain('@framework/bench')))) {
  const args = ['--enable-source-maps', benchFile, ...process.argv.slice(2)];
  const { code } = await run(tool('node'), args, { show: true });
  process.exitCode = code;
} else {
  process.exitCode = 1;
}

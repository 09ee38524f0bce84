import { installIfNeeded } from './install.mjs';
import { run } from './run.mjs';
import { tool } from './workspace.mjs';

// What `npm run fault-drill` runs: installs when needed, then the drill with these arguments.
const program = 'apps/wallet-service/test/fault-drill/main.mjs';

if (await installIfNeeded()) {
  const { code } = await run(tool('node'), [program, ...process.argv.slice(2)], { show: true });
  process.exitCode = code;
} else {
  process.exitCode = 1;
}

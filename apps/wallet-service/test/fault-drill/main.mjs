import { parseArgs } from 'node:util';
import { startVitest } from 'vitest/node';
import config from '../../../../vitest.config.ts';
import { faults } from './faults.ts';

const faultTimeoutMs = 900_000;

const help = `Lets faults happen to the wallet service, one after the other, and measures how soon after its end each is healed.

npm run fault-drill -- [--fault NAME]… [--within SECONDS]

  --fault NAME       only this fault; may be given more than once
  --within SECONDS   how soon everything has to be well after a fault, 10 by default

Faults:
${faults.map(({ name, what }) => `  ${name.padEnd(18)} ${what}`).join('\n')}
`;

/** The parsed request, or the reason why it is invalid. */
function commandLine() {
  const { values } = parseArgs({
    options: {
      fault: { type: 'string', multiple: true, default: [] },
      within: { type: 'string', default: '10' },
      help: { type: 'boolean', default: false },
    },
  });
  const all = faults.map(({ name }) => name);
  const unknown = values.fault.filter((name) => !all.includes(name));
  if (unknown.length > 0)
    throw new Error(`There is no fault ${unknown.join(', ')}: choose from ${all.join(', ')}`);
  const withinS = Number(values.within);
  if (!(withinS > 0)) throw new Error(`--within is ${values.within}: give a number of seconds above 0`);
  return { help: values.help, names: values.fault.length > 0 ? values.fault : all, withinS };
}

async function drill(faultDrill) {
  const { plugins, resolve, ssr, test } = config;
  let failedCount = 0;
  const reporter = {
    onTestCaseResult: (result) => {
      if (result.result().state === 'failed') failedCount++;
    },
  };
  await startVitest(
    'test',
    [],
    {
      config: false,
      watch: false,
      include: ['apps/wallet-service/test/fault-drill/fault-drill.ts'],
      globalSetup: test.globalSetup,
      provide: { groupCommit: false, faultDrill },
      reporters: [reporter],
      testTimeout: faultTimeoutMs,
    },
    { plugins, resolve, ssr },
  );
  say(
    `\n${faultDrill.names.length - failedCount} of ${faultDrill.names.length} faults healed within ${faultDrill.withinS} s`,
  );
}

function say(line) {
  process.stdout.write(`${line}\n`);
}

try {
  const { help: isHelp, ...chosen } = commandLine();
  if (isHelp) say(help);
  else await drill(chosen);
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}

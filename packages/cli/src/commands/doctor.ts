import { Option } from '@commander-js/extra-typings';

import {
  type CommandGroup,
  configOption,
  fileOf,
  formatOf,
  jsonOption,
  migrationsOption,
  outputOption,
  timeoutOption,
  wholeNumber,
} from '../command-group.js';
import { type Examination, examine } from '../doctor/examine.js';
import { type Finding, type Severity, isFindingName } from '../doctor/finding.js';
import { UsageError, exitCode } from '../exit-code.js';
import { type Terminal, plain, table } from '../terminal.js';

/** What the processes of the configuration's role do, by `WALLET_ROLE` and the like. */
const rolesOf = {
  all: ['application', 'delivery'],
  http: ['application'],
  worker: ['application', 'delivery'],
  relay: ['relay'],
} as const;

const roleOption = new Option('--role <role>', 'what the processes with this configuration do')
  .choices(['all', 'http', 'worker', 'relay'] as const)
  .default('all' as const)
  .env('FRAMEWORK_CLI_ROLE');
const processesOption = new Option('--processes <count>', 'how many processes use each database')
  .argParser(wholeNumber(1, 10_000))
  .default(1)
  .env('FRAMEWORK_CLI_PROCESSES');
const clockOption = new Option('--clock-skew-max-ms <ms>', 'how far two clocks may differ')
  .argParser(wholeNumber(1, 86_400_000))
  .default(1_000)
  .env('FRAMEWORK_CLI_CLOCK_SKEW_MAX_MS');
const transactionOption = new Option(
  '--long-transaction-ms <ms>',
  'the age from which a transaction is reported',
)
  .argParser(wholeNumber(1, 86_400_000))
  .default(300_000)
  .env('FRAMEWORK_CLI_LONG_TRANSACTION_MS');
const ignoreOption = new Option('--ignore <names>', 'findings to leave out, separated by commas').env(
  'FRAMEWORK_CLI_IGNORE',
);

/** `framework doctor`: looks for what is wrong with a configuration and its databases. */
export const doctor: CommandGroup = (program, { environment, terminal, end }) => {
  program
    .command('doctor')
    .description('look for what is wrong with the configuration and its databases; changes nothing')
    .addOption(configOption)
    .addOption(migrationsOption)
    .addOption(roleOption)
    .addOption(processesOption)
    .addOption(clockOption)
    .addOption(transactionOption)
    .addOption(ignoreOption)
    .addOption(timeoutOption)
    .addOption(outputOption)
    .addOption(jsonOption)
    .action(async (options) => {
      const ignored = namesIn(options.ignore);
      const examined = await examine(
        {
          ...options,
          configFile: fileOf(options),
          migrationsFolder: options.migrations,
          roles: rolesOf[options.role],
        },
        environment,
        terminal,
      );
      const findings = examined.findings.filter(({ name }) => !ignored.has(name));
      const isFound = findings.some(({ severity }) => severity !== 'note');
      if (formatOf(options, terminal) === 'json')
        terminal.writeJson({ databases: examined.databases, findings });
      else print(terminal, { ...examined, findings });
      end(isFound ? exitCode.found : exitCode.fine);
    });
};

/** @throws UsageError for a name that no finding has, which may be misspelt */
function namesIn(list = ''): ReadonlySet<string> {
  const names = list.split(',').map((name) => name.trim());
  const unknown = names.filter((name) => name !== '' && !isFindingName(name));
  if (unknown.length > 0) throw new UsageError(`--ignore: there is no finding ${unknown.join(', ')}`);
  return new Set(names);
}

const styles: Readonly<Record<Severity, 'red' | 'yellow' | 'dim'>> = {
  error: 'red',
  warning: 'yellow',
  note: 'dim',
};

function print(terminal: Terminal, { databases, findings }: Examination): void {
  const rows = databases.map(({ where, reachable, serverVersion = '' }) => [
    where,
    reachable ? `PostgreSQL ${serverVersion}` : 'not reachable',
  ]);
  if (rows.length > 0) terminal.write(`${table(['database', 'server'], rows)}\n`);
  for (const each of findings) terminal.write(textOf(terminal, each));
  const counts = (['error', 'warning', 'note'] as const).map((severity) => {
    const count = findings.filter((each) => each.severity === severity).length;
    return `${count} ${severity}${count === 1 ? '' : 's'}`;
  });
  terminal.write(counts.join(', '));
}

function textOf(terminal: Terminal, { name, severity, where, found, advice }: Finding): string {
  const head = terminal.style(styles[severity], `${severity} ${name}`);
  return `${head}  ${plain(where)}\n  found: ${plain(found)}\n  do:    ${advice}\n`;
}

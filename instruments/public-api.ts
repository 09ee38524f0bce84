import { Extractor, ExtractorConfig, ExtractorLogLevel } from '@microsoft/api-extractor';
import { mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

// Writes the public API of a package as text, so that reviews show its changes: `api/<entry>.api.md` for each entry of the manifest,
// made from the built declarations. Refuses exports, functions and methods without a docstring. `./internal` is only for other
// packages of the project, and has no report. Runs in the package's folder; `--write` updates the reports.
const { values: options } = parseArgs({ options: { write: { type: 'boolean', default: false } } });
const folder = process.cwd();
const { exports: entries } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  readonly exports: Readonly<Record<string, { readonly types?: string }>>;
};

if (options.write) rmSync('api', { recursive: true, force: true });
mkdirSync('api', { recursive: true });
const remedy = 'run `npm run api`, and review what changed';
const left = new Set(readdirSync('api'));
for (const [entry, { types }] of Object.entries(entries)) {
  if (types === undefined || entry === './internal') continue;
  const name = entry === '.' ? 'index' : entry.slice('./'.length);
  left.delete(`${name}.api.md`);
  if (!isReported(name, types)) complain(`${name}.api.md is not the public API of this entry`, remedy);
  for (const signature of undocumented(readFileSync(`api/${name}.api.md`, 'utf8')))
    complain(`${name}.api.md: ${signature}`, 'write a docstring whose first sentence says what it is for');
}
for (const file of left) complain(`${file} belongs to no entry`, remedy);

function complain(what: string, advice: string): void {
  console.error(`api/${what}: ${advice}`);
  process.exitCode = 1;
}

/**
 * The exports, functions and methods of a report without a docstring, or with one that has only tags. What a field is may be clear from
 * its name and its type.
 */
function undocumented(report: string): readonly string[] {
  const marked = report.matchAll(/^(?:\/\/ @.*| +\/\/ )\(undocumented\)\n(.*)$/gm);
  return [...marked]
    .map(([, signature = '']) => signature.trim())
    .filter((signature) => /^(export |((abstract|protected|static) )*[\w$]*(<.*>)?\()/.test(signature));
}

/** Whether the report matches the declarations; with `--write` it is updated to match. */
function isReported(name: string, types: string): boolean {
  const config = ExtractorConfig.prepare({
    configObjectFullPath: undefined,
    packageJsonFullPath: join(folder, 'package.json'),
    configObject: {
      projectFolder: folder,
      mainEntryPointFilePath: join(folder, types),
      newlineKind: 'lf',
      compiler: { tsconfigFilePath: join(folder, 'tsconfig.build.json') },
      apiReport: {
        enabled: true,
        reportFileName: name,
        reportFolder: join(folder, 'api'),
        reportTempFolder: join(folder, 'node_modules/.cache/public-api'),
        // Users of a public name also see every name that it uses.
        includeForgottenExports: true,
      },
    },
  });
  const { apiReportChanged, errorCount } = Extractor.invoke(config, {
    localBuild: options.write,
    messageCallback: (message) => {
      message.handled = message.logLevel !== ExtractorLogLevel.Error;
    },
  });
  return errorCount === 0 && (options.write || !apiReportChanged);
}

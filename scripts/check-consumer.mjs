import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire, stripTypeScriptTypes } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { pnpm } from './pnpm.mjs';
import { run } from './run.mjs';
import { Tally } from './tally.mjs';
import { root, tool } from './workspace.mjs';

// A consumer outside the workspace: installs the packed packages and runs the README's example, in TypeScript and in
// plain JavaScript. Needs built packages, and the Node of the workspace, which strips types.
const packages = ['core', 'drizzle-adapter'];
const exampleOutput = 'value 5, version 2';
const peers = ['zod', 'drizzle-orm', 'typescript', '@types/node', '@types/pg'];

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
  check('the example compiles', await run(tool('tsc'), ['-p', '.'], { cwd: folder }));
  for (const file of ['example.ts', 'plain.js']) check(`${file} runs`, await runExample(file), exampleOutput);
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

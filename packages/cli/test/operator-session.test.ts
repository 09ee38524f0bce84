import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { operatorApp } from '../../operator/src/http/index.js';
import {
  type OperatedDatabases,
  operatedDatabases,
} from '../../operator/test/fixtures/operated-databases.js';
import { loadConfig } from '../src/loaded-config.js';
import { openApplication } from '../src/operation/open-application.js';
import { Terminal } from '../src/terminal.js';
import { runHere } from './fixtures/command-here.js';
import { CommandLine, type Ended } from './fixtures/command-line.js';

const token = 'canary-token-of-the-operator-0123456789';

let all: OperatedDatabases;
let framework: CommandLine;
let config: string;

beforeAll(async () => {
  [all, framework] = await Promise.all([operatedDatabases(), CommandLine.build()]);
  config = await write('config.json', {});
  await all.first.register('notify');
  await all.first.write('a', [1, 2]);
});
afterAll(() => framework.remove());

/** Writes a configuration of both databases with further sections. */
function write(name: string, sections: object): Promise<string> {
  const { framework: given } = all.tree;
  return framework.write(name, JSON.stringify({ framework: { ...given, ...sections } }));
}

function run(words: readonly string[], file = config): Promise<Ended> {
  return runHere([...words, '--config', file]);
}

function parsed({ stdout }: Ended): unknown {
  return JSON.parse(stdout);
}

test('a database that never answers costs its part and no more than the timeout', async () => {
  all.proxy.silence();
  try {
    const startedMs = performance.now();
    const ended = await Promise.all(
      ['consumers', 'events search', 'why a', 'events export', 'audit', 'events tail --count 1'].map(
        (command) => run([...command.split(' '), '--timeout-ms', '2000']),
      ),
    );
    // What is beyond the timeout is for the other database, and for closing.
    expect(performance.now() - startedMs).toBeLessThan(2_000 + 3_000);
    for (const { code, stdout, stderr } of ended) {
      expect(code).toBe(1);
      expect(stderr).toMatch(/^error: 1\/0: shard-unavailable: it has not answered within 2000 ms\n$/);
      expect(stdout).not.toBe('');
    }
  } finally {
    all.proxy.resume();
  }
});

test('a migration waits for a server that never answers no longer than the timeout', async () => {
  all.proxy.silence();
  try {
    const startedMs = performance.now();
    const ended = await run(['migrate', 'up', '--timeout-ms', '500']);
    expect(performance.now() - startedMs).toBeLessThan(500 + 4_000);
    expect(ended.code).toBe(1);
    expect(parsed(ended)).toMatchObject({ databases: [{ applied: [] }, { applied: null }] });
  } finally {
    all.proxy.resume();
  }
});

test('a request is found by its idempotency key, and its action by its id', async () => {
  const [row] = await all.first.query<{ action_id: string }>(
    'select action_id from eventlog.events where model_version = 2',
  );
  const actionId = row?.action_id ?? '';
  await all.first.query(
    `insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
     values ('k', 'alice', 'test', $1, 'ChangeThing', '', now() + interval '1 day')`,
    [actionId],
  );
  const [key, ofBob, action, unknown, asTable] = await Promise.all([
    run(['key', 'k']),
    run(['key', 'k', '--principal', 'bob']),
    run(['action', actionId]),
    run(['action', 'nothing']),
    run(['key', 'k', '--output', 'table']),
  ]);
  expect(parsed(key)).toMatchObject({ items: [{ principal: 'alice', action: { actionId, events: [{}] } }] });
  expect(ofBob).toMatchObject({ code: 3 });
  expect(parsed(action)).toMatchObject({ items: [{ actionName: 'ChangeThing', shards: ['0/0'] }] });
  expect(unknown).toMatchObject({ code: 3 });
  expect(asTable.stdout).toMatch(/^key +k$[^]*Thing a +2 /m);
  await all.proxy.refuse();
  const [keyDown, actionDown] = [await run(['key', 'k']), await run(['action', actionId])];
  await all.proxy.accept();
  expect([keyDown.code, actionDown.code]).toEqual([1, 1]);
  expect(parsed(keyDown)).toMatchObject({ items: [{}], failures: [{ shards: ['1/0'] }] });
});

test('no command shows a password, although its database is down', async () => {
  const away = {
    'jdbc-url': 'postgresql://u:canary-1@127.0.0.1:1/away',
    username: 'u',
    password: 'canary-2',
  };
  const groups = [
    { group: 0, name: 'away', members: [{ member: 0, name: 'away', configs: { 'primary-config': away } }] },
  ];
  const sharding = { 'default-shard': { group: 0, member: 0 }, groups };
  const file = await write('away.json', { sharding, operator: { token } });
  const commands = [
    'consumers',
    'relays',
    'events search',
    'events export',
    'model a',
    'why a',
    'audit',
    'key k',
  ];
  const ended = await Promise.all(
    ['table', 'json'].flatMap((format) =>
      commands.map((command) => run([...command.split(' '), '--output', format], file)),
    ),
  );
  expect(new Set(ended.map(({ code }) => code))).toEqual(new Set([1]));
  for (const { stdout, stderr } of ended) {
    expect(stderr).toContain('ECONNREFUSED');
    expect(`${stdout}${stderr}`).not.toContain('canary');
  }
});

test('following events in a process ends with Ctrl-C', async () => {
  const child = spawn(process.execPath, [framework.file, 'events', 'tail'], {
    env: { PATH: process.env['PATH'], FRAMEWORK_CONFIG: config, FRAMEWORK_CLI_LAST: '1' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exit = once(child, 'exit');
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  child.kill('SIGINT');
  expect(await exit).toEqual([0, null]);
  expect(JSON.parse(line.toString())).toMatchObject({ event: { modelId: 'a' } });
});

test('an export ends without a failure if its reader does not want the rest', async () => {
  await all.first.write(
    'long',
    Array.from({ length: 400 }, (_each, index) => index + 1),
  );
  await all.first.query(`update eventlog.events set payload = jsonb_build_object('text', repeat('x', 2000))`);
  const child = spawn(process.execPath, [framework.file, 'events', 'export', '--config', config], {
    env: { PATH: process.env['PATH'] },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exit = once(child, 'exit');
  let errors = '';
  child.stderr.on('data', (chunk) => (errors += String(chunk)));
  await once(child.stdout, 'data');
  child.stdout.destroy();
  expect(await exit).toEqual([0, null]);
  expect(errors).toBe('');
});

test.each(['events export', 'events search --limit 400', 'doctor'])(
  '%s fails if the disk takes only a part of its output',
  async (command) => {
    await all.first.write(
      'large',
      Array.from({ length: 20 }, (_each, index) => index + 1),
    );
    // A file that may not grow beyond two blocks ends as a full disk does: with a part of what was written to it.
    const words = [framework.file, ...command.split(' '), '--config', config];
    const script = 'ulimit -f 2; exec "$0" "$@" > "$OUTPUT"';
    const child = spawn('sh', ['-c', script, process.execPath, ...words], {
      env: { PATH: process.env['PATH'], OUTPUT: `${framework.folder}/cut-off` },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let errors = '';
    child.stderr.on('data', (chunk) => (errors += String(chunk)));
    expect(await once(child, 'close')).toEqual([1, null]);
    expect(errors).toContain('the output could not be written: EFBIG');
  },
);

test.each([
  ['no file', './nowhere.mjs', '', /nowhere\.mjs cannot be imported/],
  ['a file without a function', './empty.mjs', 'export const open = 1;', /exports no function by default/],
  ['a file that throws', './throws.mjs', 'throw new Error("no luck");', /no luck/],
  [
    'a function that fails',
    './fails.mjs',
    'export default () => { throw undefined; }',
    /fails\.mjs has failed/,
  ],
  ['a function that returns nothing', './void.mjs', 'export default () => undefined;', /no databases/],
  [
    'a function that returns nonsense',
    './odd.mjs',
    'export default () => ({ databases: {} });',
    /no databases/,
  ],
  ['no package', 'no-such-package-anywhere', '', /no-such-package-anywhere cannot be imported/],
])('%s as the module is a fault of the configuration', async (_what, module, code, text) => {
  if (code !== '') await framework.write(module, code);
  const file = await write('module.json', { operator: { module } });
  expect(await run(['transfers'], file)).toEqual({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(text) as string,
  });
});

test.each([
  ['an alias within its own anchor', 'framework: &a\n  sharding: [*a, *a]\n', 'contains itself'],
  ['too many sections within each other', `framework: ${'['.repeat(200)}${']'.repeat(200)}`, '100 deep'],
])('a configuration with %s is refused', async (_what, text, found) => {
  const { code, stdout } = await run(['doctor'], await framework.write('deep.yaml', text));
  expect(code).toBe(3);
  expect(JSON.parse(stdout)).toMatchObject({
    findings: [{ name: 'configuration-invalid', found: expect.stringContaining(found) as string }],
  });
});

test.each([
  ['a variable', { FRAMEWORK_OPERATOR_TOKENFILE: '/run/token' }],
  ['a file that a variable names', { FRAMEWORK_OPERATOR_TOKENFILE_FILE: 'token-name' }],
])('the file with the token of operators may be named by %s', async (_what, given) => {
  await framework.write('token-name', '/run/token\n');
  const environment = Object.fromEntries(
    Object.entries(given).map(([name, value]) => [
      name,
      value.replace('token-name', `${framework.folder}/token-name`),
    ]),
  );
  const terminal = new Terminal({ stdout: new PassThrough(), stderr: new PassThrough() });
  expect(await loadConfig(config, environment, terminal)).toMatchObject({
    operator: { tokenFile: '/run/token' },
  });
});

test('a module that is never ready is given up', async () => {
  await framework.write('never.mjs', 'export default () => new Promise(() => undefined);');
  const file = await write('never.json', { operator: { module: './never.mjs' } });
  const terminal = new Terminal({ stdout: new PassThrough(), stderr: new PassThrough() });
  const given = await loadConfig(file, {}, terminal);
  await expect(openApplication(given, file, terminal, 20)).rejects.toMatchObject({
    code: 'invalid-configuration',
    faults: [{ message: './never.mjs was not ready within 20 ms' }],
  });
});

test.each([
  ['ends with its command', 'setInterval(() => undefined, 1_000);', 0, /^$/],
  [
    'that fails in the background is told without its stack',
    'setTimeout(() => { throw new Error(`postgres://u:canary@h failed`); }, 1); await new Promise((r) => setTimeout(r, 1_000));',
    1,
    /^error: postgres:\/\/u:\*{6}@h failed\n$/,
  ],
  ['that warns tells a person alone', 'process.emitWarning(`postgres://u:canary@h is slow`);', 0, /^$/],
])('a module %s', async (_what, code, exit, stderr) => {
  const empty =
    'export default () => ({ extensions: [], databases: { deliveries: () => [], close: async () => {} } });';
  await framework.write('busy.mjs', `${code}\n${empty}`);
  const file = await write('busy.json', { operator: { module: './busy.mjs' } });
  expect(await framework.run(['consumers', '--config', file])).toMatchObject({
    code: exit,
    stderr: expect.stringMatching(stderr) as string,
  });
});

describe('the listener of a service for operators', () => {
  let server: Server;
  let port: number;
  let file: string;

  beforeAll(async () => {
    const app = operatorApp(all.operator, { token });
    server = createServer((request, response) => {
      void (async () => {
        const answer = await app.fetch(
          new Request(`http://localhost${request.url}`, {
            headers: request.headers as Record<string, string>,
          }),
        );
        response.writeHead(answer.status).end(await answer.text());
      })();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    ({ port } = server.address() as AddressInfo);
    file = await write('listener.json', { operator: { port, token, 'read-only': true } });
  });
  afterAll(() => {
    server.close();
    server.closeAllConnections();
  });

  test('is named, and asked whether it answers', async () => {
    const [asJson, asTable] = await Promise.all([
      run(['console'], file),
      run(['console', '--output', 'table'], file),
    ]);
    expect(asJson.code).toBe(0);
    expect(parsed(asJson)).toMatchObject({ answers: true, readOnly: true, reason: null });
    expect(asTable.stdout).toMatch(new RegExp(`^http://127.0.0.1:${port}[^]*ssh -L`));
    expect(`${asTable.stdout}${asTable.stderr}${asJson.stdout}`).not.toContain('canary');
  });

  test('that refuses the token, is not there or not configured is reported', async () => {
    const tokenFile = await framework.write('token', `${token}-wrong\n`);
    const [refused, away, none] = await Promise.all([
      run(['console'], await write('wrong.json', { operator: { port, 'token-file': tokenFile } })),
      run(['console'], await write('closed.json', { operator: { port: 1, token } })),
      run(['console']),
    ]);
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('refuses the token') as string,
    });
    expect(away).toMatchObject({ code: 1, stderr: expect.stringContaining('does not answer') as string });
    expect(none).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('framework.operator.port') as string,
    });
  });

  test('may be configured by variables, of which others are left alone', async () => {
    const ended = await framework.run(['console'], {
      FRAMEWORK_CONFIG: config,
      FRAMEWORK_OPERATOR_PORT: String(port),
      FRAMEWORK_OPERATOR_TOKEN: token,
      FRAMEWORK_OPERATOR_READONLY: 'true',
    });
    expect(ended).toMatchObject({ code: 0, stderr: '' });
    expect(parsed(ended)).toMatchObject({ url: `http://127.0.0.1:${port}`, answers: true });
  });
});

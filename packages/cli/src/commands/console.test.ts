import { once } from 'node:events';
import { type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { operatorApp } from '../../../operator/src/http/index.js';
import { runHere } from '../../test/fixtures/command-here.js';
import type { Ended } from '../../test/fixtures/command-line.js';
import { MemoryCommands, parsed } from '../../test/fixtures/memory-commands.js';

const token = 'canary-token-of-the-operator-0123456789';
const commands = new MemoryCommands();

let server: Server;
let port: number;
let file: string;

beforeAll(async () => {
  const app = operatorApp(commands.databases.operator, { token });
  server = createServer((request, response) => {
    void (async () => {
      const headers = request.headers as Record<string, string>;
      const answer = await app.fetch(new Request(`http://localhost${request.url}`, { headers }));
      response.writeHead(answer.status).end(await answer.text());
    })();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ({ port } = server.address() as AddressInfo);
  file = commands.write('listener.json', { operator: { port, token, 'read-only': true } });
});
afterAll(() => {
  server.close();
  server.closeAllConnections();
  commands.remove();
});

function run(config: string, ...words: readonly string[]): Promise<Ended> {
  return runHere(['console', '--config', config, ...words]);
}

test('the listener of a service for operators is named, and asked whether it answers', async () => {
  const asJson = await run(file);
  expect(asJson.code).toBe(0);
  expect(parsed(asJson)).toMatchObject({ answers: true, readOnly: true, reason: null });
  const asTable = await run(file, '--output', 'table');
  expect(asTable.stdout).toMatch(new RegExp(`^http://127.0.0.1:${port}[^]*ssh -L`));
  expect(`${asTable.stdout}${asTable.stderr}${asJson.stdout}`).not.toContain('canary');
});

test('a listener that refuses the token, is not there or not configured is reported', async () => {
  const tokenFile = commands.writeFile('token', `${token}-wrong\n`);
  const refused = await run(commands.write('wrong.json', { operator: { port, 'token-file': tokenFile } }));
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('refuses the token') as string });
  const away = await run(commands.write('closed.json', { operator: { port: 1, token } }));
  expect(away).toMatchObject({ code: 1, stderr: expect.stringContaining('does not answer') as string });
  const none = await run(commands.plain);
  expect(none).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('framework.operator.port') as string,
  });
});

test('a listener may be configured by variables, of which others are left alone', async () => {
  vi.stubEnv('FRAMEWORK_CONFIG', commands.plain);
  const ended = await runHere(['console'], {
    environment: {
      FRAMEWORK_OPERATOR_PORT: String(port),
      FRAMEWORK_OPERATOR_TOKEN: token,
      FRAMEWORK_OPERATOR_READONLY: 'true',
    },
  });
  expect(ended).toMatchObject({ code: 0, stderr: '' });
  expect(parsed(ended)).toMatchObject({ url: `http://127.0.0.1:${port}`, answers: true });
});

import { PassThrough } from 'node:stream';
import { afterAll, expect, test } from 'vitest';

import { runHere } from '../test/fixtures/command-here.js';
import { MemoryCommands } from '../test/fixtures/memory-commands.js';
import { loadConfig } from './loaded-config.js';
import { Terminal } from './terminal.js';

const commands = new MemoryCommands();
afterAll(() => commands.remove());

test.each([
  ['a variable', { FRAMEWORK_OPERATOR_TOKENFILE: '/run/token' }],
  ['a file that a variable names', { FRAMEWORK_OPERATOR_TOKENFILE_FILE: 'token-name' }],
])('the file with the token of operators may be named by %s', async (_what, given) => {
  commands.writeFile('token-name', '/run/token\n');
  const environment = Object.fromEntries(
    Object.entries(given).map(([name, value]) => [
      name,
      value.replace('token-name', `${commands.folder}/token-name`),
    ]),
  );
  const terminal = new Terminal({ stdout: new PassThrough(), stderr: new PassThrough() });
  expect(await loadConfig(commands.plain, environment, terminal)).toMatchObject({
    operator: { tokenFile: '/run/token' },
  });
});

test.each([
  ['an alias within its own anchor', 'framework: &a\n  sharding: [*a, *a]\n', 'contains itself'],
  ['too many sections within each other', `framework: ${'['.repeat(200)}${']'.repeat(200)}`, '100 deep'],
])('a configuration with %s is refused', async (_what, text, found) => {
  const { code, stdout } = await runHere(['doctor', '--config', commands.writeFile('deep.yaml', text)]);
  expect(code).toBe(3);
  expect(JSON.parse(stdout)).toMatchObject({
    findings: [{ name: 'configuration-invalid', found: expect.stringContaining(found) as string }],
  });
});

import { PassThrough } from 'node:stream';
import { afterAll, expect, test } from 'vitest';

import { runHere } from '../../test/fixtures/command-here.js';
import { MemoryCommands } from '../../test/fixtures/memory-commands.js';
import { loadConfig } from '../loaded-config.js';
import { Terminal } from '../terminal.js';
import { openApplication } from './open-application.js';

const commands = new MemoryCommands();
afterAll(() => commands.remove());

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
  if (code !== '') commands.writeFile(module, code);
  const file = commands.write('faulty.json', { operator: { module } });
  expect(await runHere(['transfers', '--config', file])).toEqual({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(text) as string,
  });
});

test('a module that is never ready is given up', async () => {
  commands.writeFile('never.mjs', 'export default () => new Promise(() => undefined);');
  const file = commands.write('never.json', { operator: { module: './never.mjs' } });
  const terminal = new Terminal({ stdout: new PassThrough(), stderr: new PassThrough() });
  const given = await loadConfig(file, {}, terminal);
  await expect(openApplication(given, file, terminal, 20)).rejects.toMatchObject({
    code: 'invalid-configuration',
    faults: [{ message: './never.mjs was not ready within 20 ms' }],
  });
});

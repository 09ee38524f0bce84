import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { CommandLine } from './fixtures/command-line.js';
import { MemoryCommands } from './fixtures/memory-commands.js';

const commands = new MemoryCommands();
let framework: CommandLine;
/** A configuration of databases in memory, in the process that runs the command. */
let config: string;

/** A module whose log has more events than a pipe or a small disk takes. */
const filled = `
  import open, { MemoryApplication } from './operated-application.mjs';
  const versions = Array.from({ length: 400 }, (_each, index) => index + 1);
  const payload = { text: 'x'.repeat(2_000) };
  await MemoryApplication.current.databases.first.writeAtOnce('a', versions, { payload });
  export default open;`;

beforeAll(async () => {
  framework = await CommandLine.build();
  await framework.bundle('operated-application.ts');
  const module = await framework.write('filled.mjs', filled);
  config = commands.write('process.json', { operator: { module } });
});
afterAll(async () => {
  commands.remove();
  await framework.remove();
});

/** What a module does in the background, and that it adds nothing. */
function configOf(name: string, background: string): string {
  const empty =
    'export default () => ({ extensions: [], databases: { deliveries: () => [], close: async () => {} } });';
  commands.writeFile(`${name}.mjs`, `${background}\n${empty}`);
  return commands.write(`${name}.json`, { operator: { module: `./${name}.mjs` } });
}

test('a process ends with the code of its command, whatever a module does in the background', async () => {
  const throwing =
    'setTimeout(() => { throw new Error(`postgres://u:canary@h failed`); }, 1); await new Promise((r) => setTimeout(r, 1_000));';
  const runs = {
    wrong: framework.run(['heal']),
    unread: framework.run(['shards', '--config', '/nowhere.yaml']),
    busy: framework.run(['consumers', '--config', configOf('busy', 'setInterval(() => undefined, 1_000);')]),
    throwing: framework.run(['consumers', '--config', configOf('throwing', throwing)]),
    warning: framework.run([
      'consumers',
      '--config',
      configOf('warning', 'process.emitWarning(`postgres://u:canary@h is slow`);'),
    ]),
    variables: framework.run(['events', 'search'], { FRAMEWORK_CONFIG: config, FRAMEWORK_CLI_LIMIT: '1' }),
  };
  expect({
    wrong: await runs.wrong,
    unread: await runs.unread,
    busy: await runs.busy,
    throwing: await runs.throwing,
    warning: await runs.warning,
    variables: await runs.variables,
  }).toMatchObject({
    wrong: { code: 2, stdout: '' },
    unread: { code: 1, stdout: '', stderr: 'error: --config: /nowhere.yaml cannot be read (ENOENT)\n' },
    busy: { code: 0, stderr: '' },
    // Without its stack and its password.
    throwing: { code: 1, stderr: 'error: postgres://u:******@h failed\n' },
    warning: { code: 0, stderr: '' },
    variables: { code: 0, stderr: '' },
  });
  expect(JSON.parse((await runs.variables).stdout)).toMatchObject({ items: { length: 1 } });
});

test('a process ends well with Ctrl-C and without its reader, and fails if the disk is full', async () => {
  const env = { PATH: process.env['PATH'], FRAMEWORK_CONFIG: config, FRAMEWORK_CLI_LAST: '1' };
  const started = (words: string): ReturnType<typeof spawn> =>
    spawn(process.execPath, [framework.file, ...words.split(' ')], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });

  const tail = started('events tail');
  const reader = started('events export');
  // A file that may not grow beyond two blocks ends as a full disk does: with a part of what was written to it.
  const script = 'ulimit -f 2; exec "$0" "$@" > "$OUTPUT"';
  const words = ['-c', script, process.execPath, framework.file, 'events', 'export'];
  const disk = spawn('sh', words, {
    env: { ...env, OUTPUT: `${framework.folder}/cut-off` },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ends = [tail, reader, disk].map(async (child) => {
    let errors = '';
    child.stderr?.on('data', (chunk) => (errors += String(chunk)));
    const [code, signal]: unknown[] = await once(child, 'close');
    return { code, signal, errors };
  });
  const [line] = (await once(tail.stdout!, 'data')) as [Buffer];
  tail.kill('SIGINT');
  await once(reader.stdout!, 'data');
  reader.stdout!.destroy();
  expect(JSON.parse(line.toString())).toMatchObject({ event: { modelId: 'a' } });
  expect(await Promise.all(ends)).toEqual([
    { code: 0, signal: null, errors: '' },
    { code: 0, signal: null, errors: '' },
    {
      code: 1,
      signal: null,
      errors: expect.stringContaining('the output could not be written: EFBIG') as string,
    },
  ]);
});

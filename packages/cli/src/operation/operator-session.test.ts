import { afterAll, expect, test } from 'vitest';

import { runHere } from '../../test/fixtures/command-here.js';
import { MemoryCommands, linesOf } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
afterAll(() => commands.remove());

test.each(['table', 'json'])(
  'no command shows a password as %s, although its database is down',
  async (format) => {
    const file = commands.write('away.json', { operator: { token: 'canary-token-of-the-operator' } });
    const asked = [
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
      asked.map((command) => runHere([...command.split(' '), '--config', file, '--output', format])),
    );
    expect(ended.map(({ code }) => code)).toEqual(asked.map(() => 1));
    for (const { stdout, stderr } of ended) {
      expect(stderr).toContain('ECONNREFUSED');
      expect(`${stdout}${stderr}`).not.toContain('canary');
    }
  },
);

test('a command reports each missing database once, however often it is missing', async () => {
  commands.renew();
  await commands.first.write('a', [1]);
  let isWritten = false;
  commands.databases.takeDown(1);
  const { stderr, stdout } = await commands.run('events tail --last 1 --count 2 --interval-ms 20', [], {
    onOutput: () => {
      if (!isWritten) void commands.first.write('b', [1]);
      isWritten = true;
    },
  });
  expect(stderr.match(/^error: 1\/0: shard-unavailable/gm)).toHaveLength(1);
  expect(linesOf({ code: 0, stdout, stderr })).toHaveLength(2);
});

test('a command without a configuration, or with one that cannot be read, queries no database', async () => {
  commands.renew();
  const requests: unknown[] = [];
  commands.databases.takeDown(0, (message) => requests.push(message) > 0);
  expect(await runHere(['consumers'])).toMatchObject({ code: 2, stdout: '' });
  expect(await runHere(['consumers', '--config', '/nowhere.yaml'])).toEqual({
    code: 1,
    stdout: '',
    stderr: 'error: --config: /nowhere.yaml cannot be read (ENOENT)\n',
  });
  expect(requests).toEqual([]);
});

import { afterAll, beforeEach, describe, expect, test } from 'vitest';

import { runHere } from '../../test/fixtures/command-here.js';
import { MemoryCommands, signed } from '../../test/fixtures/memory-commands.js';

const commands = new MemoryCommands();
afterAll(() => commands.remove());

let [eventId, actionId] = ['', ''];
beforeEach(async () => {
  commands.renew();
  const { first, second } = commands;
  for (const database of [first, second])
    for (const handler of ['notify', 'publish']) await database.register(handler);
  const ids = await first.write('a', [1, 2]);
  await first.kill('notify', ids.slice(0, 1), 'no');
  await second.kill('notify', await second.write('b', [1]), 'no');
  eventId = ids[0] ?? '';
  actionId = first.log[0]?.actionId ?? '';
});

/** The commands that query every database. `EVENT` and `ACTION` are in the first one. */
const queries = [
  'consumers',
  'relays',
  'pause notify --yes',
  'pause notify --dry-run',
  'resume notify --yes',
  'resume notify --dry-run',
  'retire publish --yes',
  'retire publish --dry-run',
  'retire notify --discard-blocked --yes',
  'dead-letters list',
  'dead-letters list --events',
  'dead-letters show EVENT',
  'dead-letters replay --handler notify --yes',
  'dead-letters replay --handler notify --dry-run',
  'dead-letters skip --handler notify --yes',
  'dead-letters skip --handler notify --dry-run',
  'events tail --last 1 --count 1',
  'events search',
  'events show EVENT',
  'events export',
  'events publish-again --relay publish --model a --yes',
  'events publish-again --relay publish --model a --dry-run',
  'model a',
  'model a --verify',
  'action ACTION',
  'key k',
  'why EVENT',
  'audit',
  'view transfers',
  'transfers',
  'check amounts',
];

/** Commands without a database, and those that test/commands.test.ts and test/doctor.test.ts run on real ones. */
const otherCommands = new Set(['openapi', 'asyncapi', 'console', 'doctor', 'migrate', 'shards', 'help']);

/** The names of commands in the help of the program or of a group of commands. */
async function named(group: readonly string[] = []): Promise<readonly string[]> {
  const { stdout } = await runHere([...group, '--help']);
  const [, list = ''] = stdout.split('\nCommands:\n');
  return Array.from(list.matchAll(/^ {2}([a-z-]+)/gm), ([, name = '']) => name);
}

describe('while one database is down', () => {
  describe.each(['json', 'table'])('as %s', (format) => {
    test.each(queries)('%s fails, names it, and does the rest', async (command) => {
      const words = command.replace('EVENT', eventId).replace('ACTION', actionId);
      const more = ['--output', format, ...(command.includes('--yes') ? signed : [])];
      const ended = await commands.runWithoutSecond(words, more);
      expect(ended).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^error: 1\/0: shard-unavailable/m) as string,
        stdout: expect.stringMatching(/\S/) as string,
      });
    });
  });

  test('no command is left out here', async () => {
    const names = (await named()).filter((name) => !otherCommands.has(name));
    const inGroups = await Promise.all(
      names.map(async (name) => {
        const inner = await named([name]);
        return inner.length === 0
          ? [name]
          : inner.filter((each) => each !== 'help').map((each) => `${name} ${each}`);
      }),
    );
    const missing = inGroups
      .flat()
      .filter((name) => !queries.some((command) => command === name || command.startsWith(`${name} `)));
    expect(missing).toEqual([]);
    expect(names.length).toBeGreaterThan(10);
  });
});

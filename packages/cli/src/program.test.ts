import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

import { runHere } from '../test/fixtures/command-here.js';
import { pointInTime } from './command-group.js';
import { catalogue } from './doctor/finding.js';

const page = readFileSync(new URL('../../../docs/operations/command-line.md', import.meta.url), 'utf8');

const commands = [
  ['', 'doctor', 'migrate', 'migrate status', 'migrate plan', 'migrate up', 'shards'],
  ['consumers', 'relays', 'pause', 'resume', 'retire'],
  ['dead-letters', 'dead-letters list', 'dead-letters show', 'dead-letters replay', 'dead-letters skip'],
  ['events', 'events tail', 'events search', 'events show', 'events export', 'events publish-again'],
  ['model', 'action', 'key', 'why', 'audit'],
  ['view', 'transfers', 'check', 'openapi', 'asyncapi', 'console'],
].flat();

test.each([
  [['heal'], /unknown command 'heal'/],
  [['shards'], /FRAMEWORK_CONFIG/],
  [['shards', '--confg', 'x'], /unknown option '--confg'/],
  [['doctor', '--ignore', 'clock-skwe', '--config', 'x'], /no finding clock-skwe/],
  [['doctor', '--processes', '0', '--config', 'x'], /whole number from 1/],
  [['events', 'search', '--since', '2026-02-30', '--config', 'x'], /must be a date or a time/],
  [['migrate', 'up', '--output', 'xml', '--config', 'x'], /Allowed choices are table, json/],
])('%j is refused', async (words, text) => {
  expect(await runHere(words)).toEqual({
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(text) as string,
  });
});

test.each([
  ['2026-01-31', '2026-01-31T00:00:00.000Z'],
  ['2026-01-31T12:00Z', '2026-01-31T12:00:00.000Z'],
  ['2026-01-31T12:00:30.5+0100', '2026-01-31T11:00:30.500Z'],
  ['2026-01-31T12:00:00+01:00', '2026-01-31T11:00:00.000Z'],
  ['2026-01-31T24:00:00Z', '2026-02-01T00:00:00.000Z'],
])('the time %s is %s', (text, time) => {
  expect(pointInTime(text).toISOString()).toBe(time);
});

test.each([
  '2026-02-30',
  '2026-02-30T12:00Z',
  '2026-01-31T12:00',
  '2026-01-31T12',
  'tomorrow',
  '31.1.2026',
  '',
])('the text %j is no time', (text) => {
  expect(() => pointInTime(text)).toThrow('must be a date or a time');
});

test('each command has help, whose options and variables are documented', async () => {
  const helps = await Promise.all(
    commands.map((command) => runHere([...command.split(' ').filter(Boolean), '--help'])),
  );
  expect(helps.map(({ code }) => code)).toEqual(commands.map(() => 0));
  const documented = new Set(
    [...page.matchAll(/^\| `(--[a-z-]+)[^`]*` +\| `(\w+)`/gm)].map(
      ([, option, variable]) => `${option} ${variable}`,
    ),
  );
  const offered = helps.flatMap(({ stdout }) =>
    [...stdout.matchAll(/^ {2}(--[a-z-]+)([^]*?)(?=^ {2}-|^$)/gm)].map(([, option, text = '']) => {
      const [, variable] = /env:\s*(\w+)\)/.exec(text) ?? [];
      return `${option} ${variable}`;
    }),
  );
  expect([...new Set(offered)].toSorted()).toEqual([...documented].toSorted());
  const listed = helps.flatMap(({ stdout }) => [...stdout.matchAll(/^Usage: framework ([a-z -]*[a-z])/gm)]);
  expect(
    listed.flatMap(([, command = '']) => (page.includes(`\`framework ${command}`) ? [] : [command])),
  ).toEqual([]);
});

test('the page lists every finding of the doctor with its severity, in the order of the report', () => {
  const listed = [...page.matchAll(/^\| `([a-z-]+)` +\| (error|warning|note) +\|/gm)].map(
    ([, name, severity]) => [name, severity],
  );
  expect(listed).toEqual(Object.entries(catalogue).map(([name, [severity]]) => [name, severity]));
});

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { faults } from './faults.js';

const program = fileURLToPath(new URL('main.mjs', import.meta.url));
const names = faults.map(({ name }) => name);

test('the help names every fault', () => {
  const { status, stdout } = drill('--help');
  expect(status).toBe(0);
  for (const name of names) expect(stdout).toMatch(new RegExp(`^  ${name} `, 'm'));
});

test.each([
  [['--fault', 'killed', '--fault', 'absent'], `There is no fault absent: choose from ${names.join(', ')}`],
  [['--within', 'soon'], '--within is soon: give a number of seconds above 0'],
])('the arguments %s are refused', (args, message) => {
  expect(drill(...args)).toMatchObject({ status: 1, stdout: '', stderr: `${message}\n` });
});

function drill(...args: readonly string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, [program, ...args], { encoding: 'utf8' });
}

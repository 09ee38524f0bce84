import { expect, test } from 'vitest';

import { operatorCommand } from './operator-command.js';

test('a service without words has no command', () => {
  expect(operatorCommand([])).toBeUndefined();
});

test.each([['migrate'], ['adopt 0/0'], ['adopt 0/1 255/63'], ['release 1/0']])('%s is a command', (words) => {
  expect(operatorCommand(words.split(' '))).toHaveProperty('run');
});

test.each([
  ['adpot'],
  ['adopt'],
  ['adopt 0'],
  ['adopt 256/0'],
  ['adopt 0/64'],
  ['release'],
  ['release 1/0 mexico'],
  ['migrate all'],
])('%s is answered with what can be written', (words) => {
  expect(operatorCommand(words.split(' '))).toMatch(/adopt 0\/1.*release 1\/0/s);
});

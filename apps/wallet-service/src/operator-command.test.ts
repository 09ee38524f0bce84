import { expect, test } from 'vitest';

import { operatorCommand } from './operator-command.js';

test('a service without arguments runs no command', () => {
  expect(operatorCommand([])).toBeUndefined();
});

test.each([['migrate'], ['adopt 0/0'], ['adopt 0/1 255/63'], ['release 1/0']])(
  'the command %s is accepted',
  (words) => {
    expect(operatorCommand(words.split(' '))).toHaveProperty('run');
  },
);

test.each([
  ['adpot'],
  ['adopt'],
  ['adopt 0'],
  ['adopt 256/0'],
  ['adopt 0/64'],
  ['release'],
  ['release 1/0 mexico'],
  ['migrate all'],
])('the command %s is answered with the usage', (words) => {
  expect(operatorCommand(words.split(' '))).toMatch(/adopt 0\/1.*release 1\/0/s);
});

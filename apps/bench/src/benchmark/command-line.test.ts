import { expect, test } from 'vitest';
import { commandLine } from './command-line.js';

test('every benchmark runs in full without arguments', () => {
  expect(commandLine([])).toEqual({
    parts: [],
    rounds: 5,
    scale: 1,
    runs: 1,
    short: false,
    record: false,
    json: undefined,
  });
});

test('the short form runs fewer rounds at a smaller scale unless arguments say otherwise', () => {
  expect(commandLine(['--short'])).toMatchObject({ rounds: 3, scale: 0.2, short: true });
  expect(commandLine(['--short', '--rounds', '2'])).toMatchObject({ rounds: 2, scale: 0.2 });
});

test('recording uses the short form', () => {
  expect(commandLine(['--record'])).toMatchObject({ rounds: 3, scale: 0.2, short: true, record: true });
});

test('several runs are only for recording, which takes their medians', () => {
  expect(commandLine(['--record'])).toMatchObject({ runs: 5 });
  expect(commandLine(['--record', '--runs', '3'])).toMatchObject({ runs: 3 });
  expect(() => commandLine(['--short', '--runs', '3'])).toThrow('--runs works only with --record');
});

test('figures are not written where ratios are compared', () => {
  expect(() => commandLine(['--short', '--json', 'file'])).toThrow('--json has nothing to write');
  expect(commandLine(['--record', '--json', 'file'])).toMatchObject({ json: 'file' });
});

test('arguments that are not options select benchmarks', () => {
  expect(commandLine(['deposits', 'lag'])).toMatchObject({ parts: ['deposits', 'lag'] });
});

test.each([
  ['--rounds', '0'],
  ['--rounds', '1.5'],
  ['--scale', '-1'],
  ['--scale', 'half'],
])('the option %s %s is refused', (option, value) => {
  expect(() => commandLine([`${option}=${value}`])).toThrow(`${option} is ${value}`);
});

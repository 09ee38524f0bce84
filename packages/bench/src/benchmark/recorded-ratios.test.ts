import { expect, test } from 'vitest';
import type { Figure } from './figure.js';
import { fallenRatios, isRatio } from './recorded-ratios.js';

const faster: Figure = { title: 'faster', value: 1, unit: '×', atLeast: 2, measured: {} };
const slower: Figure = { title: 'slower', value: 1, unit: '×', atMost: 2, measured: {} };

test('a ratio that must be large has fallen when it is more than 20 % below the recorded one', () => {
  expect(fallenRatios([{ ...faster, value: 2.01 }], { faster: 2.5 })).toEqual([]);
  expect(fallenRatios([{ ...faster, value: 1.99 }], { faster: 2.5 })).toEqual([
    'faster: 1.990, recorded 2.5',
  ]);
});

test('a ratio that must be small has fallen when the recorded one is more than 20 % below it', () => {
  expect(fallenRatios([{ ...slower, value: 1.24 }], { slower: 1 })).toEqual([]);
  expect(fallenRatios([{ ...slower, value: 1.26 }], { slower: 1 })).toEqual(['slower: 1.260, recorded 1']);
});

test('a ratio that became not a number has fallen', () => {
  const ratios = { faster: 2, slower: 1 };
  const broken = [faster, slower].map((figure) => ({ ...figure, value: Number.NaN }));
  expect(fallenRatios(broken, ratios)).toHaveLength(2);
});

test('a ratio that was never recorded is not passed over', () => {
  expect(fallenRatios([faster], {})).toEqual(['faster: was never recorded; do it by --record']);
});

test('only what has a bound and no unit of the machine is a ratio', () => {
  const { atLeast: _atLeast, ...unbound } = faster;
  expect([faster, slower, { ...faster, unit: '%' }].map(isRatio)).toEqual([true, true, true]);
  expect([unbound, { ...faster, unit: 'ms' }].map(isRatio)).toEqual([false, false]);
});

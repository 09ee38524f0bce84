import { expect, test } from 'vitest';
import type { BenchContext, Benchmark, Figure } from './benchmark.js';
import { isRatio, medianFigures } from './recorded-ratios.js';
import { compareWithRecorded, comparisonOf, lineOf } from './short-form.js';

const faster: Figure = { title: 'faster', value: 1, unit: '×', atLeast: 2, measured: {} };
const slower: Figure = { title: 'slower', value: 1, unit: '×', atMost: 0.5, measured: {} };

/** A benchmark that returns these values in turn, run by run. */
function giving(...values: readonly number[]): Benchmark & { readonly runs: () => number } {
  let count = 0;
  return {
    name: 'fake',
    run: async () => [{ ...faster, value: values[count++] ?? Number.NaN }],
    runs: () => count,
  };
}

const context = { say: () => undefined } as unknown as BenchContext;

test('a higher-is-better ratio has regressed when it is more than 30 % below the record', () => {
  expect(comparisonOf({ ...faster, value: 1.76 }, { faster: 2.5 })).toMatchObject({ isGood: true });
  expect(comparisonOf({ ...faster, value: 1.74 }, { faster: 2.5 })).toMatchObject({ isGood: false });
});

test('a lower-is-better ratio has regressed when the record is more than 30 % below it', () => {
  expect(comparisonOf({ ...slower, value: 1.42 }, { slower: 1 })).toMatchObject({ isGood: true });
  expect(comparisonOf({ ...slower, value: 1.44 }, { slower: 1 })).toMatchObject({ isGood: false });
});

test('a ratio within its bound is good, however much better the recorded one is', () => {
  expect(comparisonOf({ ...slower, value: 0.5 }, { slower: 0.2 })).toMatchObject({ isGood: true });
  expect(comparisonOf({ ...faster, value: 2 }, { faster: 9 })).toMatchObject({ isGood: true });
});

test.each([faster, slower])('a ratio that is no longer a number has regressed', (figure) => {
  const ratios = { faster: 2, slower: 1 };
  expect(comparisonOf({ ...figure, value: Number.NaN }, ratios)).toMatchObject({ isGood: false });
});

test('a ratio without a record is reported and not measured again', async () => {
  const benchmark = giving(1);
  const [comparison] = await compareWithRecorded([benchmark], context, {});
  expect(comparison).toMatchObject({ isGood: false });
  expect(comparison && lineOf(comparison)).toBe('✗ faster: 1.000, never recorded; record it with --record');
  expect(benchmark.runs()).toBe(1);
});

test('a regressed ratio is measured again, up to three times in all', async () => {
  const [passing, failing] = [giving(1, 2.4), giving(1, 1.5, 1.7, 3)];
  const comparisons = await compareWithRecorded([passing, failing], context, { faster: 2.5 });
  expect(comparisons.map(lineOf)).toEqual(['✓ faster: 2.400, recorded 2.5', '✗ faster: 1.700, recorded 2.5']);
  expect([passing.runs(), failing.runs()]).toEqual([2, 3]);
});

test('a figure is a ratio only if it has a bound and its unit does not depend on the machine', () => {
  const { atLeast: _atLeast, ...unbound } = faster;
  expect([faster, slower, { ...faster, unit: '%' }].map(isRatio)).toEqual([true, true, true]);
  expect([unbound, { ...faster, unit: 'ms' }].map(isRatio)).toEqual([false, false]);
});

test('the median of each figure of several runs is recorded, with the medians that it was computed from', () => {
  const run = (value: number): readonly Figure[] => [
    { ...faster, value, measured: { framework: value * 10 } },
    { ...slower, value: 2 * value },
  ];
  expect(medianFigures([run(3), run(9), run(4)])).toEqual([
    { ...faster, value: 4, measured: { framework: 40 } },
    { ...slower, value: 8 },
  ]);
});

import {
  CommitOutcomeUnknownError,
  InvariantViolationError,
  ShardUnavailableError,
  TransientStorageError,
} from '@framework/core';
import { describe, expect, test } from 'vitest';

import { OutageReport } from '../src/worker-context.js';
import { shard } from './delivery-bench.js';

function reported(): { readonly report: OutageReport; readonly told: unknown[] } {
  const told: unknown[] = [];
  const report = new OutageReport({
    onError: (error) => told.push(error),
    onRecovered: () => told.push('recovered'),
  });
  return { report, told };
}

function lostConnection(index: number): Error {
  return new TransientStorageError(shard, `connection ${index} was lost`);
}

const lost = new TransientStorageError(shard, 'the connection was lost');

describe('an outage', () => {
  test.each([
    ['has no connection', () => new ShardUnavailableError(shard, 'no connection could be had')],
    ['loses a connection', () => new TransientStorageError(shard, 'the connection was lost')],
    ['does not say what became of a commit', () => new CommitOutcomeUnknownError(shard, undefined)],
  ])('in which the database %s is reported once, as is its end', (_what, errorOf) => {
    const { report, told } = reported();
    const first = errorOf();
    report.failed(first);
    report.failed(errorOf());
    report.failed(new Error('a loop failed', { cause: errorOf() }));
    report.succeeded();
    report.succeeded();
    expect(told).toEqual([first, 'recovered']);
  });

  test('is reported again when it comes back', () => {
    const { report, told } = reported();
    for (let outage = 0; outage < 2; outage++) {
      report.failed(lost);
      report.succeeded();
    }
    expect(told).toEqual([lost, 'recovered', lost, 'recovered']);
  });

  test('with ever new texts is reported with all of them, although the first ones are forgotten', () => {
    const { report, told } = reported();
    const tell = (from: number, to: number): number => {
      const before = told.length;
      for (let index = from; index < to; index++) report.failed(lostConnection(index));
      return told.length - before;
    };
    expect([tell(0, 20), tell(0, 20), tell(20, 21), tell(0, 1)]).toEqual([20, 0, 1, 1]);
  });
});

test('other errors are reported each time, and do not count as an outage', () => {
  const { report, told } = reported();
  const errors = [
    new InvariantViolationError('a bug'),
    new InvariantViolationError('a bug'),
    new Error('a bug'),
    'thrown',
  ];
  for (const error of errors) report.failed(error);
  report.succeeded();
  expect(told).toEqual(errors);
});

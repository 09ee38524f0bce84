import {
  InvariantViolationError,
  ShardIdentifier,
  ShardUnavailableError,
  StaleRecordError,
  UnknownShardError,
} from '@framework/core';
import { DatabasesClosedError, HandlerTimeoutError, RetryLaterError } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { askedWaitMs, attemptVerdict } from './attempt-failure.js';

test('a call that failed because a shard was unavailable does not count as an attempt, but one that took too long does', () => {
  const unavailable = new ShardUnavailableError(ShardIdentifier.of(0, 0), 'down');
  expect(attemptVerdict(unavailable)).toBe('outage');
  expect(attemptVerdict(new Error('wrapped', { cause: unavailable }))).toBe('outage');
  expect(attemptVerdict(new HandlerTimeoutError('one', 30_000))).toBe('counts');
});

test('a call that fails because of an unknown shard or closed databases does not count; any other permanent error is final', () => {
  expect(attemptVerdict(new UnknownShardError(ShardIdentifier.of(1, 0)))).toBe('outage');
  expect(attemptVerdict(new DatabasesClosedError(ShardIdentifier.of(0, 0)))).toBe('outage');
  expect(attemptVerdict(new InvariantViolationError('never'))).toBe('final');
  expect(attemptVerdict(new Error('of the handler itself'))).toBe('counts');
});

test('a call that threw an unreadable error counts as an attempt', () => {
  const unavailable = new ShardUnavailableError(ShardIdentifier.of(0, 0), 'down');
  const unreadable = new Proxy(unavailable, {
    get: (target, property) => {
      if (property === 'retryable') throw new Error('unreadable');
      return Reflect.get(target, property) as unknown;
    },
  });
  expect(attemptVerdict(unreadable)).toBe('counts');
});

test('an action that was overtaken does not count, but one that keeps adding a model whose id is taken does', () => {
  expect(attemptVerdict(new StaleRecordError('Account', 'a', 3))).toBe('outage');
  expect(attemptVerdict(new StaleRecordError('Account', 'a', 0))).toBe('counts');
});

test('a handler that asks to be called later has made no attempt, and waits at least as long as it asks', () => {
  const later = new RetryLaterError({ afterMs: 2_000 });
  expect(attemptVerdict(later)).toBe('outage');
  expect(attemptVerdict(new Error('wrapped', { cause: later }))).toBe('outage');
  expect([0, 1].map((random) => askedWaitMs(later, random))).toEqual([2_000, 2_200]);
  expect(askedWaitMs(new Error('wrapped', { cause: later }), 0)).toBe(2_000);
  expect(askedWaitMs(new RetryLaterError(), 0)).toBeUndefined();
  expect(askedWaitMs(new Error('of the handler itself'), 0)).toBeUndefined();
});

test('a handler can ask for a wait from nothing to a day', () => {
  expect(new RetryLaterError({ afterMs: 0 }).afterMs).toBe(0);
  expect(new RetryLaterError({ afterMs: Infinity }).afterMs).toBe(86_400_000);
  for (const afterMs of [-1, NaN])
    expect(() => new RetryLaterError({ afterMs })).toThrow(
      /afterMs is .*: pass a number of milliseconds from 0/,
    );
});

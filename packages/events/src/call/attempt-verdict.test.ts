import {
  InvariantViolationError,
  ShardIdentifier,
  ShardUnavailableError,
  UnknownShardError,
} from '@framework/core';
import { DatabasesClosedError, HandlerTimeoutError } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { attemptVerdict } from './attempt-failure.js';

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

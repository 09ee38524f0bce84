import {
  InvariantViolationError,
  ShardIdentifier,
  ShardUnavailableError,
  UnknownShardError,
} from '@framework/core';
import { HandlerTimeoutError } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { attemptVerdict } from './attempt-failure.js';

test('a call that failed because a shard could not serve is no attempt, and one that took too long is one', () => {
  const unavailable = new ShardUnavailableError(ShardIdentifier.of(0, 0), 'down');
  expect(attemptVerdict(unavailable)).toBe('outage');
  expect(attemptVerdict(new Error('wrapped', { cause: unavailable }))).toBe('outage');
  expect(attemptVerdict(new HandlerTimeoutError('one', 30_000))).toBe('counts');
});

test('a call that failed because its process does not know a shard is no attempt, and any other lasting error is final', () => {
  expect(attemptVerdict(new UnknownShardError(ShardIdentifier.of(1, 0)))).toBe('outage');
  expect(attemptVerdict(new InvariantViolationError('never'))).toBe('final');
  expect(attemptVerdict(new Error('of the handler itself'))).toBe('counts');
});

test('a call that threw an error which cannot be read is an attempt', () => {
  const unavailable = new ShardUnavailableError(ShardIdentifier.of(0, 0), 'down');
  const unreadable = new Proxy(unavailable, {
    get: (target, property) => {
      if (property === 'retryable') throw new Error('unreadable');
      return Reflect.get(target, property) as unknown;
    },
  });
  expect(attemptVerdict(unreadable)).toBe('counts');
});

import { ShardIdentifier, UnknownShardError } from '@framework/core';
import { expect, test, vi } from 'vitest';

import { deposited } from '../../test/account.js';
import { type AttemptFailure, logAttemptFailure } from './attempt-failure.js';

/** The line on standard error for a failure. */
function lineOf(own: Partial<AttemptFailure> = {}): string {
  const write = vi.spyOn(console, 'error').mockReturnValue();
  logAttemptFailure({
    handler: 'one',
    event: deposited('a', 1),
    eventCount: 1,
    attempt: 2,
    error: new Error('no'),
    counted: true,
    willRetry: true,
    retryAfterMs: 499.2,
    ...own,
  });
  const lines = write.mock.calls.map(([line]) => String(line));
  write.mockRestore();
  return lines.join('\n');
}

test.each<[string, Partial<AttemptFailure>, string]>([
  [
    'is followed by another',
    {},
    'DepositedEvent a1 of Account a: attempt 2 failed; the next attempt is due after 500 ms: Error: no',
  ],
  [
    'is followed by another at once',
    { retryAfterMs: 0 },
    'DepositedEvent a1 of Account a: attempt 2 failed; the next attempt is due after 0 ms: Error: no',
  ],
  [
    'does not count',
    { counted: false },
    'DepositedEvent a1 of Account a: attempt 2 failed, but does not count; the next attempt is due after 500 ms: Error: no',
  ],
  [
    'was made at a batch',
    { eventCount: 3 },
    'DepositedEvent a1 and 2 more of Account a: attempt 2 failed; the next attempt is due after 500 ms: Error: no',
  ],
  [
    'has an error of several lines',
    { error: new Error('first\r\n  second') },
    'DepositedEvent a1 of Account a: attempt 2 failed; the next attempt is due after 500 ms: Error: first second',
  ],
])('the line about an attempt says what happens next when it %s', (_what, failure, line) => {
  expect(lineOf(failure)).toBe(`Handler one, ${line}`);
});

test('the line about a dead letter says that later events wait, and what to do', () => {
  expect(lineOf({ willRetry: false, retryAfterMs: undefined })).toBe(
    'Handler one, DepositedEvent a1 of Account a: attempt 2 failed; the event is a dead letter now, and later events of the model wait ' +
      'behind it until you replay or skip it with DeliveryOperator: Error: no',
  );
});

test('the line about an attempt that needs another shard says what it waits for', () => {
  const error = new UnknownShardError(ShardIdentifier.of(1, 0));
  const line = lineOf({ counted: false, error: new Error('cannot', { cause: error }) });
  expect(line).toContain(
    'the next attempt is due after 500 ms, and attempts continue until the shard is in the configuration of this process, or a ' +
      'process that has it takes over: Error: cannot, caused by UnknownShardError: ',
  );
});

import {
  CommitOutcomeUnknownError,
  ShardIdentifier,
  ShardUnavailableError,
  ShardedId,
  TransientStorageError,
  UnknownShardError,
} from '@framework/core';
import { type DeliverableEvent, HistoryChangedError } from '@framework/core/adapter';
import { pino } from 'pino';
import { expect, test } from 'vitest';

import { deliveryOptions } from './delivery-log.js';

// oxlint-disable-next-line typescript/no-extraneous-class -- only its name matters
class Wallet {}

const mexico = ShardIdentifier.of(1, 0);
const walletId = ShardedId.generate(Wallet, mexico).value;

/** The options with a log whose lines are all kept. */
function logged(): {
  readonly options: ReturnType<typeof deliveryOptions>;
  readonly lines: unknown[];
  readonly ends: string[];
} {
  const lines: unknown[] = [];
  const ends: string[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { options: deliveryOptions({ logger, onRestartNeeded: () => ends.push('end') }), lines, ends };
}

test('a process whose handlers hang reports it and exits', () => {
  const { options, lines, ends } = logged();
  options.deliveryHooks.onRestartNeeded?.({ abandonedCount: 64, countByHandler: new Map([['notify', 64]]) });
  expect(lines).toMatchObject([{ level: 60, abandonedCount: 64, handlers: { notify: 64 } }]);
  expect(ends).toEqual(['end']);
});

test('the end of an outage is logged with the shards of the database', () => {
  const { options, lines } = logged();
  options.deliveryHooks.onRecovered?.([mexico]);
  expect(lines).toMatchObject([{ level: 30, shards: ['shard (1, 0)'], msg: 'delivery has recovered' }]);
});

test('the time to stop is a whole number of milliseconds, even when it is halved', () => {
  const options = deliveryOptions({ logger: pino({ level: 'silent' }), shutdownTimeoutMs: 15_001 });
  expect(options.stopTimeoutMaxMs).toBe(7_501);
});

test.each([
  [new ShardUnavailableError(mexico, 'it is down')],
  [new TransientStorageError(mexico, 'the connection was lost')],
  [new CommitOutcomeUnknownError(mexico, 'action-1')],
])('an outage is logged with its reason, without a stack', (error) => {
  const { options, lines } = logged();
  options.deliveryHooks.onError?.(error, [mexico]);
  const told = { shards: ['shard (1, 0)'], reason: error.message, msg: 'delivery continues after an error' };
  expect(lines).toMatchObject([{ level: 40, ...told }]);
  expect(lines[0]).not.toHaveProperty('stack');
});

test('a database whose history changed is logged with what happened and a remedy, without a stack', () => {
  const { options, lines } = logged();
  options.deliveryHooks.onError?.(new HistoryChangedError(), [mexico]);
  const reason = expect.stringMatching(
    /been restarted.*restarts from the saved cursors on its own/,
  ) as string;
  const shards = ['shard (1, 0)'];
  expect(lines).toMatchObject([{ level: 40, shards, reason, msg: 'delivery continues after an error' }]);
  expect(lines[0]).not.toHaveProperty('stack');
});

test('each failed attempt of a handler is logged, and a dead letter as an error with a remedy', () => {
  const { options, lines } = logged();
  const event = {
    id: 'event-1',
    type: 'Deposited',
    modelName: 'Wallet',
    modelId: walletId,
    actionName: 'WalletDepositMoneyAction',
    headers: { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` },
  } as Partial<DeliverableEvent> as DeliverableEvent;
  const failure = {
    handler: 'notify',
    event,
    eventCount: 1,
    attempt: 1,
    error: new Error('no'),
    counted: true,
  };
  options.deliveryHooks.onAttemptFailed?.({ ...failure, willRetry: true, retryAfterMs: 500 });
  options.deliveryHooks.onAttemptFailed?.({ ...failure, willRetry: false, retryAfterMs: undefined });
  const unknown = new Error('no', { cause: new UnknownShardError(ShardIdentifier.of(9, 9)) });
  options.deliveryHooks.onAttemptFailed?.({ ...failure, error: unknown, willRetry: true, retryAfterMs: 500 });
  const model = { model: 'Wallet', modelId: walletId, shard: 'shard (1, 0)' };
  const trace = { traceId: 'a'.repeat(32), spanId: 'b'.repeat(16), action: 'WalletDepositMoneyAction' };
  const told = { handler: 'notify', eventId: 'event-1', ...model, ...trace, attempt: 1, reason: 'Error: no' };
  const remedy = expect.stringMatching(/later events of the model wait.*replay or skip/) as string;
  expect(lines).toMatchObject([
    { level: 40, ...told, retryAfterMs: 500 },
    { level: 50, ...told, remedy },
    { level: 40, remedy: expect.stringMatching(/^add the shard .* until then the event waits/) as string },
  ]);
  expect(lines[0]).not.toHaveProperty('remedy');
});

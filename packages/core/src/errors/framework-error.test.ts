import { describe, expect, test, vi } from 'vitest';

import * as sharding from '../config/configuration-errors.js';
import { ConfigurationError } from '../config/configuration-errors.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import * as storage from '../storage/storage-errors.js';
import * as actions from './action-errors.js';
import { LimitExceededError } from './action-errors.js';
import { type ErrorCode, FrameworkError, InvariantViolationError, errorCodes } from './framework-error.js';
import * as handlers from './handler-errors.js';
import { HandlerTimeoutError } from './handler-errors.js';
import * as values from './value-errors.js';

const shard = ShardIdentifier.of(0, 0);
const cause = new Error('the driver says so');

/** One error of every class, by its code. */
const oneOfEach: Readonly<Record<ErrorCode, FrameworkError>> = {
  'stale-record': new storage.StaleRecordError('Wallet', 'wallet-1', 3),
  'transient-storage': new storage.TransientStorageError(shard, 'deadlock', { cause }),
  'shard-unavailable': new storage.ShardUnavailableError(shard, 'its queue is full', { cause }),
  'commit-outcome-unknown': new storage.CommitOutcomeUnknownError(shard, 'action-1', { cause }),
  'partial-commit': new sharding.PartialCommitError(
    'action-1',
    { committed: [shard], failed: [ShardIdentifier.of(1, 0)], unknown: undefined },
    { cause },
  ),
  'cross-shard': new sharding.CrossShardException('TestAction', [shard]),
  'entity-not-found': new storage.EntityNotFoundError('Wallet', 'wallet-1'),
  'not-unique': new storage.NotUniqueError('Wallet'),
  'databases-closed': new storage.DatabasesClosedError(shard, 'global-1 on db/global'),
  'unknown-shard': new sharding.UnknownShardError(shard),
  'no-usable-shard': new sharding.NoUsableShardError([{ shard, path: 'a', message: 'b' }], { cause }),
  'shard-undetermined': new storage.ShardUndeterminedError('Wallet', 'wallet-1'),
  'constraint-violation': new storage.ConstraintViolationError(
    shard,
    { constraint: undefined, table: undefined },
    { cause },
  ),
  'storage-failure': new storage.StorageFailureError(shard, 'syntax error', { cause }),
  'nested-transaction': new storage.NestedTransactionError(shard),
  'transaction-over': new storage.TransactionOverError(shard),
  'unknown-action': new actions.UnknownActionError('TestAction'),
  'nested-execution': new actions.NestedExecutionError('InnerAction', 'OuterAction'),
  'access-denied': new actions.AccessDeniedError('alice may not'),
  'plan-unavailable': new actions.PlanUnavailableError('TestAction'),
  'plan-sealed': new actions.PlanSealedError('TestAction'),
  'staged-twice': new actions.StagedTwiceError('Wallet', 'wallet-1'),
  'invalid-idempotency-key': new actions.InvalidIdempotencyKeyError('is empty'),
  'idempotency-key-reused': new actions.IdempotencyKeyReusedError('key', 'A', {
    actionId: 'id',
    actionName: 'B',
  }),
  'invalid-params': new actions.InvalidParamsError('TestAction', [{ path: 'a', message: 'b' }], {
    cause,
  }),
  'invalid-id': new values.InvalidIdError('x', 'a UUID version 7'),
  'invalid-shard': new values.InvalidShardError('group', 256, 255),
  'invalid-cursor': new values.InvalidCursorError('x'),
  'invalid-page-limit': new values.InvalidPageLimitError(0, 1_000),
  'invalid-model': new values.InvalidModelError('ownerId cannot be null'),
  'invalid-configuration': new ConfigurationError([{ path: 'a', message: 'b' }], { cause }),
  'unstorable-value': new values.UnstorableValueError('Wallet.balance', 'it is NaN', { cause }),
  'unreadable-event': new values.UnreadableEventError(
    { type: 'WalletCreatedEvent', modelId: 'wallet-1' },
    { path: 'amount', reason: 'it is missing' },
    { cause },
  ),
  'unreadable-value': new values.UnreadableValueError('wallets.due_date', 'id', { cause }),
  'unreadable-message': new values.UnreadableMessageError('id', 'is missing', { cause }),
  'unknown-event-type': new values.UnknownEventTypeError('com.example.Opened', ['com.example.Closed']),
  'limit-exceeded': new LimitExceededError('changesMax', 1_000, 'too many'),
  'handler-timeout': new HandlerTimeoutError('notify', 30_000),
  'retry-later': new handlers.RetryLaterError({ afterMs: 1_000, cause }),
  'handler-names': new handlers.HandlerNamesError('notify', ['tell', 'inform']),
  'handler-in-use': new handlers.HandlerInUseError('notify', 'a process has it'),
  'unknown-handler': new handlers.UnknownHandlerError('notify'),
  'history-changed': new storage.HistoryChangedError(),
  'broker-unavailable': new handlers.BrokerUnavailableError('to-nats', { cause }),
  'message-refused': new handlers.MessageRefusedError('to-nats', 'too large'),
  'operator-request': new handlers.OperatorRequestError('has no reason: say why'),
  'invariant-violation': new InvariantViolationError('a bug', { cause }),
};

const entries = Object.entries(oneOfEach) as [ErrorCode, FrameworkError][];

test('every error class has its place in the table of codes', () => {
  const modules = [actions, handlers, sharding, storage, values];
  const classes: unknown[] = modules.flatMap((module) => Object.values(module) as unknown[]);
  classes.push(ConfigurationError, HandlerTimeoutError, LimitExceededError, InvariantViolationError);
  expect(new Set(entries.map(([, error]) => error.constructor))).toEqual(new Set(classes));
  expect(Object.keys(oneOfEach).sort()).toEqual(Object.keys(errorCodes).sort());
});

test.each(entries)(
  '%s is a branded error with a name, a message and the retryability of the table',
  (code, error) => {
    expect(error).toBeInstanceOf(Error);
    expect(FrameworkError.is(error)).toBe(true);
    expect(error).toMatchObject({ code, retryable: errorCodes[code], name: error.constructor.name });
    expect(error.message).not.toBe('');
  },
);

test('exactly the errors after which the same call may succeed are retryable', () => {
  const retryable = entries.filter(([, error]) => error.retryable).map(([code]) => code);
  expect(retryable).toEqual([
    'stale-record',
    'transient-storage',
    'shard-unavailable',
    'commit-outcome-unknown',
    'handler-timeout',
    'retry-later',
    'history-changed',
    'broker-unavailable',
  ]);
});

test.each(entries.filter(([, error]) => error.cause !== undefined))('%s keeps its cause', (_code, error) => {
  expect(error.cause).toBe(cause);
});

describe('FrameworkError.is', () => {
  test('recognises errors from another copy of the package', async () => {
    vi.resetModules();
    const copy = await import('./framework-error.js');
    const foreign = new copy.InvariantViolationError('of the other copy');
    expect(foreign).not.toBeInstanceOf(FrameworkError);
    expect(FrameworkError.is(foreign)).toBe(true);
  });

  test.each([new Error('plain'), { code: 'stale-record' }, 'stale-record', null, undefined])(
    'does not mistake %o for an error of the framework',
    (value) => {
      expect(FrameworkError.is(value)).toBe(false);
    },
  );
});

/** The error as the cause of a chain of this many others. */
function wrapped(error: unknown, times: number): unknown {
  return times === 0 ? error : new Error('Failed query', { cause: wrapped(error, times - 1) });
}

describe('FrameworkError.find', () => {
  const stale = oneOfEach['stale-record'];

  test('finds an error itself, or among its causes', () => {
    expect(FrameworkError.find(stale)).toBe(stale);
    expect(FrameworkError.find(wrapped(stale, 2))).toBe(stale);
  });

  test('returns the outermost error', () => {
    const outer = new InvariantViolationError('outer', { cause: stale });
    expect(FrameworkError.find(wrapped(outer, 1))).toBe(outer);
  });

  test('follows at most 8 causes, so that a circle ends', () => {
    expect(FrameworkError.find(wrapped(stale, 7))).toBe(stale);
    expect(FrameworkError.find(wrapped(stale, 8))).toBeUndefined();
    const circle = new Error('circle');
    circle.cause = circle;
    expect(FrameworkError.find(circle)).toBeUndefined();
  });

  test.each([undefined, null, 'text', new Error('plain')])('finds nothing in %o', (value) => {
    expect(FrameworkError.find(value)).toBeUndefined();
  });
});

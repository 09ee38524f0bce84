import { describe, expect, test, vi } from 'vitest';

import { ShardIdentifier } from '../sharding/shard-identifier.js';
import * as actions from './action-exceptions.js';
import { LimitExceededException } from './action-exceptions.js';
import * as sharding from './configuration-exceptions.js';
import { ConfigurationException } from './configuration-exceptions.js';
import { type ErrorCode, FrameworkException, errorCodes } from './framework-exception.js';
import * as handlers from './handler-exceptions.js';
import { HandlerTimeoutException } from './handler-exceptions.js';
import { InvariantViolation } from './invariant-violation.js';
import * as storage from './storage-exceptions.js';
import * as values from './value-exceptions.js';

const shard = ShardIdentifier.of(0, 0);
const cause = new Error('the driver says so');

/** One error of every class, by its code. */
const oneOfEach: Readonly<Record<ErrorCode, FrameworkException>> = {
  'stale-record': new storage.StaleRecordException('Wallet', 'wallet-1', 3),
  'transient-storage': new storage.TransientStorageException(shard, 'deadlock', { cause }),
  'shard-unavailable': new storage.ShardUnavailableException(shard, 'its queue is full', { cause }),
  'commit-outcome-unknown': new storage.CommitOutcomeUnknownException(shard, 'action-1', { cause }),
  'partial-commit': new sharding.PartialCommitException(
    'action-1',
    { committed: [shard], failed: [ShardIdentifier.of(1, 0)], unknown: undefined },
    { cause },
  ),
  'cross-shard': new sharding.CrossShardException('TestAction', [shard]),
  'entity-not-found': new storage.EntityNotFoundException('Wallet', 'wallet-1'),
  'not-unique': new storage.NotUniqueException('Wallet'),
  'unknown-shard': new sharding.UnknownShardException(shard),
  'no-usable-shard': new sharding.NoUsableShardException([{ shard, path: 'a', message: 'b' }], { cause }),
  'shard-undetermined': new storage.ShardUndeterminedException('Wallet', 'wallet-1'),
  'constraint-violation': new storage.ConstraintViolationException(
    shard,
    { constraint: undefined, table: undefined },
    { cause },
  ),
  'storage-failure': new storage.StorageFailureException(shard, 'syntax error', { cause }),
  'nested-transaction': new storage.NestedTransactionException(shard),
  'transaction-over': new storage.TransactionOverException(shard),
  'unknown-action': new actions.UnknownActionException('TestAction'),
  'nested-execution': new actions.NestedExecutionException('InnerAction', 'OuterAction'),
  'plan-unavailable': new actions.PlanUnavailableException('TestAction'),
  'plan-sealed': new actions.PlanSealedException('TestAction'),
  'staged-twice': new actions.StagedTwiceException('Wallet', 'wallet-1'),
  'invalid-idempotency-key': new actions.InvalidIdempotencyKeyException('is empty'),
  'idempotency-key-reused': new actions.IdempotencyKeyReusedException('key', 'A', {
    actionId: 'id',
    actionName: 'B',
  }),
  'invalid-params': new actions.InvalidParamsException('TestAction', [{ path: 'a', message: 'b' }], {
    cause,
  }),
  'invalid-id': new values.InvalidIdException('x', 'a UUID version 7'),
  'invalid-shard': new values.InvalidShardException('group', 256, 255),
  'invalid-cursor': new values.InvalidCursorException('x'),
  'invalid-model': new values.InvalidModelException('ownerId cannot be null'),
  'invalid-configuration': new ConfigurationException([{ path: 'a', message: 'b' }], { cause }),
  'unstorable-value': new values.UnstorableValueException('Wallet.balance', 'it is NaN', { cause }),
  'limit-exceeded': new LimitExceededException('changesMax', 1_000, 'too many'),
  'handler-timeout': new HandlerTimeoutException('notify', 30_000),
  'handler-names': new handlers.HandlerNamesException('notify', ['tell', 'inform']),
  'handler-in-use': new handlers.HandlerInUseException('notify', 'a process has it'),
  'unknown-handler': new handlers.UnknownHandlerException('notify'),
  'history-changed': new storage.HistoryChangedException(),
  'invariant-violation': new InvariantViolation('a bug', { cause }),
};

const entries = Object.entries(oneOfEach) as [ErrorCode, FrameworkException][];

test('every class of the folder has its place in the table', () => {
  const modules = [actions, handlers, sharding, storage, values];
  const classes: unknown[] = modules.flatMap((module) => Object.values(module) as unknown[]);
  classes.push(ConfigurationException, HandlerTimeoutException, LimitExceededException, InvariantViolation);
  expect(new Set(entries.map(([, error]) => error.constructor))).toEqual(new Set(classes));
  expect(Object.keys(oneOfEach).sort()).toEqual(Object.keys(errorCodes).sort());
});

test.each(entries)(
  '%s is a branded error with a name, a message and the retryability of the table',
  (code, error) => {
    expect(error).toBeInstanceOf(Error);
    expect(FrameworkException.is(error)).toBe(true);
    expect(error).toMatchObject({ code, retryable: errorCodes[code], name: error.constructor.name });
    expect(error.message).not.toBe('');
  },
);

test('only these errors are worth doing the same again', () => {
  const retryable = entries.filter(([, error]) => error.retryable).map(([code]) => code);
  expect(retryable).toEqual([
    'stale-record',
    'transient-storage',
    'shard-unavailable',
    'commit-outcome-unknown',
    'handler-timeout',
    'history-changed',
  ]);
});

test.each(entries.filter(([, error]) => error.cause !== undefined))('%s keeps its cause', (_code, error) => {
  expect(error.cause).toBe(cause);
});

describe('is', () => {
  test('knows errors of another copy of the package', async () => {
    vi.resetModules();
    const copy = await import('./invariant-violation.js');
    const foreign = new copy.InvariantViolation('of the other copy');
    expect(foreign).not.toBeInstanceOf(FrameworkException);
    expect(FrameworkException.is(foreign)).toBe(true);
  });

  test.each([new Error('plain'), { code: 'stale-record' }, 'stale-record', null, undefined])(
    'does not take %o for one',
    (value) => {
      expect(FrameworkException.is(value)).toBe(false);
    },
  );
});

/** The error as the cause of so many others. */
function wrapped(error: unknown, times: number): unknown {
  return times === 0 ? error : new Error('Failed query', { cause: wrapped(error, times - 1) });
}

describe('find', () => {
  const stale = oneOfEach['stale-record'];

  test('finds the error itself and through causes', () => {
    expect(FrameworkException.find(stale)).toBe(stale);
    expect(FrameworkException.find(wrapped(stale, 2))).toBe(stale);
  });

  test('gives the outermost one', () => {
    const outer = new InvariantViolation('outer', { cause: stale });
    expect(FrameworkException.find(wrapped(outer, 1))).toBe(outer);
  });

  test('looks at 8 links and no further, so that a circle of causes ends', () => {
    expect(FrameworkException.find(wrapped(stale, 7))).toBe(stale);
    expect(FrameworkException.find(wrapped(stale, 8))).toBeUndefined();
    const circle = new Error('circle');
    circle.cause = circle;
    expect(FrameworkException.find(circle)).toBeUndefined();
  });

  test.each([undefined, null, 'text', new Error('plain')])('finds nothing in %o', (value) => {
    expect(FrameworkException.find(value)).toBeUndefined();
  });
});

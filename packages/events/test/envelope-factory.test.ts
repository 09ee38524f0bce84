import { type ModelClass, ShardIdentifier, ShardedId } from '@framework/core';
import { modelNameOf } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';

import { EnvelopeFactory } from '../src/handler/row-envelope.js';
import { Account, DepositedEvent, deposited } from './account.js';

const [first, second, absent] = [0, 1, 2].map((group) => ShardIdentifier.of(group, 0)) as [
  ShardIdentifier,
  ShardIdentifier,
  ShardIdentifier,
];

function shardOf(shards: readonly ShardIdentifier[], modelId: string): ShardIdentifier {
  return new EnvelopeFactory(shards, []).envelope(deposited(modelId, 1), DepositedEvent, 1).shard;
}

describe('the shard of an event', () => {
  test('is the one in the id of its model', () => {
    expect(shardOf([first, second], ShardedId.generate(Account, second).value)).toBe(second);
  });

  test.each([
    ['carries no shard', 'account 7'],
    ['carries one of another database', ShardedId.generate(Account, absent).value],
  ])('is the first one of its database when the id of its model %s', (_what, modelId) => {
    expect(shardOf([second, first], modelId)).toBe(second);
  });

  test('is the only shard of its database if there is no other, whatever its model id contains', () => {
    expect(shardOf([first], ShardedId.generate(Account, second).value)).toBe(first);
  });
});

function modelOf(factory: EnvelopeFactory, modelName: string): ModelClass<unknown> {
  const { event } = factory.envelope(deposited('a', 1, { modelName }), DepositedEvent, 1);
  return (event as DepositedEvent).model;
}

describe('the model of an event', () => {
  test('is the class with its name, if one was passed', () => {
    expect(modelOf(new EnvelopeFactory([first], [Account]), 'Account')).toBe(Account);
  });

  test('is an empty class with its name if none was passed, the same for all events', () => {
    const factory = new EnvelopeFactory([first], [Account]);
    const model = modelOf(factory, 'Purse');
    expect(modelNameOf(model)).toBe('Purse');
    expect(modelOf(factory, 'Purse')).toBe(model);
    expect(modelNameOf(modelOf(factory, 'Safe'))).toBe('Safe');
  });

  test('may be passed twice, but not as two classes', () => {
    class Purse {
      static readonly modelName = 'Account';
      readonly id: string = '';
    }
    expect(modelOf(new EnvelopeFactory([first], [Account, Account]), 'Account')).toBe(Account);
    expect(() => new EnvelopeFactory([first], [Account, Purse])).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }) as Error,
    );
  });
});

describe('an event', () => {
  const factory = new EnvelopeFactory([first], []);

  test('is decoded once, when a handler accesses it', () => {
    const unreadable = factory.envelope(
      deposited('a', 1, { payload: { amount: 'many' } }),
      DepositedEvent,
      1,
    );
    expect(unreadable.payload).toEqual({ amount: 'many' });
    expect(() => unreadable.event).toThrow(expect.objectContaining({ code: 'unreadable-event' }) as Error);
    const envelope = factory.envelope(deposited('a', 1), DepositedEvent, 1);
    expect(envelope.event).toBe(envelope.event);
  });

  test('stays undecoded for a handler of all events', () => {
    expect(factory.envelope(deposited('a', 1), undefined, 1).event).toBeUndefined();
  });
});

import { describe, expect, test } from 'vitest';

import { Wallet, WalletDepositedEvent } from '../../test/wallet.js';
import { eventTypeOf } from '../model/model-event.js';
import { durableName, modelNameOf } from './model-class.js';

test('a durable name is the class name by default', () => {
  expect(durableName(Wallet, undefined, 'a name')).toBe('Wallet');
  expect(modelNameOf(Wallet)).toBe('Wallet');
  expect(eventTypeOf(WalletDepositedEvent)).toBe('WalletDepositedEvent');
});

test('a durable name is the one that the class declares', () => {
  class Account extends Wallet {
    static readonly modelName = 'Wallet';
  }
  class Deposited extends WalletDepositedEvent {
    static readonly eventType = 'wallet.deposited.v1';
  }
  expect(modelNameOf(Account)).toBe('Wallet');
  expect(eventTypeOf(Deposited)).toBe('wallet.deposited.v1');
  const longest = 'a'.repeat(255);
  expect(durableName(Wallet, longest, 'a name')).toBe(longest);
});

describe('a class that a bundler has renamed', () => {
  test.each(['', 'a', 'A', 'Ae', '_Wallet', '$', 'wallet2', 'class_1'])(
    'is refused under the name %j',
    (name) => {
      expect(() => durableName({ name }, undefined, 'static readonly modelName')).toThrow(
        expect.objectContaining({ code: 'invariant-violation' }),
      );
    },
  );

  test('is refused with a message that says what to declare', () => {
    expect(() => durableName({ name: 'e' }, undefined, 'static readonly modelName')).toThrow(
      /static readonly modelName/,
    );
  });

  test('is accepted when it declares its name', () => {
    expect(durableName({ name: 'e' }, 'Wallet', 'static readonly modelName')).toBe('Wallet');
  });
});

test.each(['', 'a'.repeat(256), 'a\u0000', '\ud83d', 5 as unknown as string])(
  'a declared name is refused if it is empty, too long for an index, or not storable: %j',
  (name) => {
    expect(() => durableName({ name: 'Wallet' }, name, 'static readonly modelName')).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }),
    );
  },
);

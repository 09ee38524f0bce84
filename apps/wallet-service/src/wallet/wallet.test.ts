import { ShardIdentifier, ShardedId } from '@framework/core';
import { decodeEvent, encodePayload, eventTypeOf } from '@framework/core/adapter';
import { Big } from 'big.js';
import { describe, expect, test } from 'vitest';

import {
  Wallet,
  WalletClosedEvent,
  WalletCreatedEvent,
  WalletMoneyDepositedEvent,
  WalletMoneyWithdrawnEvent,
} from './wallet.js';

const now = new Date('2026-01-02T03:04:05.006Z');
const shard = ShardIdentifier.of(1, 0);
const ownerId = '6f1c0c5e-6d5b-4a53-9b1e-0d5f7c2b9a10';

/** A stored wallet, as a repository reads it. */
function walletOf(balance: string, currency = 'EUR'): Wallet {
  const id = ShardedId.generate(Wallet, shard);
  const fields = { id, state: 'OPENED', createdDate: now, version: 3, ownerId, currency } as const;
  return new Wallet({ ...fields, balance: new Big(balance) });
}

/** The payloads of a wallet's events, as they will be in the log. */
function payloadsOf({ events }: Wallet): readonly unknown[] {
  return events.map((event) => JSON.parse(encodePayload(event)) as unknown);
}

describe('a wallet', () => {
  const fields = {
    id: ShardedId.generate(Wallet, shard),
    state: 'OPENED',
    createdDate: now,
    ownerId,
    currency: 'EUR',
    balance: new Big(0),
  } as const;

  test.each([
    ['ownerId', 'ownerId cannot be null'],
    ['currency', 'currency cannot be null'],
    ['balance', 'balance cannot be null'],
  ])('needs its %s', (field, message) => {
    for (const missing of [null, undefined]) {
      const given = { ...fields, [field]: missing } as unknown as typeof fields;
      expect(() => new Wallet(given)).toThrow(expect.objectContaining({ code: 'invalid-model', message }));
    }
  });
});

describe('open', () => {
  test('opens a wallet on the shard and records its owner, currency and balance', () => {
    const wallet = Wallet.open(shard, ownerId, 'EUR', new Big('12.50'), now);
    expect(wallet).toMatchObject({
      state: 'OPENED',
      version: 0,
      createdDate: now,
      updatedDate: now,
      ownerId,
    });
    expect(wallet.id.resolveShardIdentifier()).toBe(shard);
    expect(wallet.events).toEqual([new WalletCreatedEvent(wallet.id, ownerId, 'EUR', new Big('12.5'))]);
    const id = wallet.id.value;
    expect(payloadsOf(wallet)).toEqual([{ id, ownerId, currency: 'EUR', initialBalance: '12.5' }]);
  });

  test('opens a wallet with a balance of zero', () => {
    expect(Wallet.open(shard, ownerId, 'JPY', new Big(0), now).balance.toFixed()).toBe('0');
  });

  test.each([
    [null, 'EUR', new Big(0), 'ownerId cannot be null'],
    [ownerId, null, new Big(0), 'currency cannot be null'],
    [ownerId, 'EUR', null, 'balance cannot be null'],
  ])('refuses the owner %s, the currency %s, the balance %s: %s', (owner, currency, balance, message) => {
    expect(() => Wallet.open(shard, owner as string, currency as string, balance as Big, now)).toThrow(
      expect.objectContaining({ code: 'invalid-model', message }),
    );
  });

  test.each([
    ['invalid-amount', 'EUR', '-0.01'],
    ['invalid-amount', 'EUR', '0.001'],
    ['invalid-amount', 'EUR', '1e20'],
    ['unknown-currency', 'ZZZ', '0'],
    ['unknown-currency', 'eur', '0'],
  ])('refuses with %s: %s %s', (code, currency, balance) => {
    expect(() => Wallet.open(shard, ownerId, currency, new Big(balance), now)).toThrow(
      expect.objectContaining({ code }),
    );
  });
});

describe('WalletCreatedEvent', () => {
  const id = ShardedId.generate(Wallet, shard);
  const opening = new WalletCreatedEvent(id, ownerId, 'EUR', new Big('12.5'));

  test('is read from the log as it is written', () => {
    const payload: unknown = JSON.parse(encodePayload(opening));
    expect(decodeEvent(WalletCreatedEvent, { model: Wallet, modelId: id.value, payload })).toEqual(opening);
  });

  test('is read from rows written when its first balance was named balance', () => {
    const payload = { ownerId, currency: 'EUR', balance: '12.5' };
    expect(decodeEvent(WalletCreatedEvent, { model: Wallet, modelId: id.value, payload })).toEqual(opening);
  });
});

describe('deposit', () => {
  test('returns the next wallet and leaves the current one unchanged', () => {
    const wallet = walletOf('100');
    const next = wallet.deposit(new Big('25.50'));
    expect(next).toMatchObject({ id: wallet.id, version: 3, state: 'OPENED', ownerId, currency: 'EUR' });
    expect(next.balance.toFixed()).toBe('125.5');
    expect(wallet.balance.toFixed()).toBe('100');
    expect(wallet.events).toEqual([]);
  });

  test('records the exact amount and the new balance', () => {
    const wallet = walletOf('100').deposit(new Big('25.50'));
    expect(wallet.events).toEqual([
      new WalletMoneyDepositedEvent(wallet.id, new Big('25.5'), new Big('125.5')),
    ]);
    expect(eventTypeOf(WalletMoneyDepositedEvent)).toBe('WalletMoneyDepositedEvent');
    expect(payloadsOf(wallet)).toEqual([{ amount: '25.5', newBalance: '125.5' }]);
  });

  test('adds exactly', () => {
    expect(walletOf('0.1').deposit(new Big('0.2')).balance.toFixed()).toBe('0.3');
    expect(walletOf('99999999999999999999.98').deposit(new Big('0.01')).balance.toFixed()).toBe(
      '99999999999999999999.99',
    );
  });

  test.each(['0', '-0.01', '-1e1000000000'])('refuses %s, which is not positive', (amount) => {
    expect(() => walletOf('100').deposit(new Big(amount))).toThrow(
      expect.objectContaining({ code: 'invalid-amount', message: 'Deposit amount must be positive' }),
    );
  });

  test.each(['0.001', '1e20', '1e1000000000', '1e-1000000000'])('refuses %s EUR', (amount) => {
    expect(() => walletOf('100').deposit(new Big(amount))).toThrow(
      expect.objectContaining({ code: 'invalid-amount' }),
    );
  });

  test('refuses an amount that would take the balance beyond 20 digits', () => {
    expect(() => walletOf('99999999999999999999.99').deposit(new Big('0.01'))).toThrow(
      expect.objectContaining({ code: 'invalid-amount' }),
    );
  });
});

describe('withdraw', () => {
  test('returns the next wallet and records the exact amount and new balance', () => {
    const wallet = walletOf('0.3').withdraw(new Big('0.1'));
    expect(wallet.balance.toFixed()).toBe('0.2');
    expect(wallet.events).toEqual([new WalletMoneyWithdrawnEvent(wallet.id, new Big('0.1'), new Big('0.2'))]);
    expect(payloadsOf(wallet)).toEqual([{ amount: '0.1', newBalance: '0.2' }]);
  });

  test('takes everything out, and not a cent more', () => {
    expect(walletOf('10').withdraw(new Big('10')).balance.toFixed()).toBe('0');
    expect(() => walletOf('10').withdraw(new Big('10.01'))).toThrow(
      expect.objectContaining({ code: 'insufficient-funds' }),
    );
  });

  test.each(['0', '-0.01'])('refuses %s, which is not positive', (amount) => {
    expect(() => walletOf('100').withdraw(new Big(amount))).toThrow(
      expect.objectContaining({ code: 'invalid-amount', message: 'Withdraw amount must be positive' }),
    );
  });

  test.each(['0.001', '1e1000000000', '1e-1000000000'])('refuses %s EUR', (amount) => {
    expect(() => walletOf('100').withdraw(new Big(amount))).toThrow(
      expect.objectContaining({ code: 'invalid-amount' }),
    );
  });
});

describe('takeBack', () => {
  test('exceeds the limit of deposits, so that no refund is ever refused', () => {
    const wallet = walletOf('99999999999999999999.99').takeBack(new Big('99999999999999999999.99'));
    expect(wallet.balance.toFixed()).toBe('199999999999999999999.98');
    expect(() => wallet.deposit(new Big(1))).toThrow(expect.objectContaining({ code: 'invalid-amount' }));
    expect(wallet.withdraw(new Big('99999999999999999999.99')).balance.toFixed()).toBe(
      '99999999999999999999.99',
    );
  });
});

describe('a closed wallet', () => {
  const closed = walletOf('10').close();

  test('records its closing and keeps its balance', () => {
    expect(closed.state).toBe('CLOSED');
    expect(closed.balance.toFixed()).toBe('10');
    expect(closed.events).toEqual([new WalletClosedEvent(closed.id)]);
    expect(payloadsOf(closed)).toEqual([{}]);
  });

  test.each([
    ['a deposit', (): Wallet => closed.deposit(new Big(1))],
    ['a withdrawal', (): Wallet => closed.withdraw(new Big(1))],
    ['more than it holds', (): Wallet => closed.withdraw(new Big(11))],
    ['closing', (): Wallet => closed.close()],
  ])('refuses %s', (_what, change) => {
    expect(change).toThrow(expect.objectContaining({ code: 'wallet-closed' }));
  });

  test('says that an amount is not positive, rather than that it is closed', () => {
    expect(() => closed.deposit(new Big(0))).toThrow('Deposit amount must be positive');
    expect(() => closed.withdraw(new Big(0))).toThrow('Withdraw amount must be positive');
  });
});

test('the events are read back from the log as they were written', () => {
  const { id, events } = walletOf('0.1').deposit(new Big('0.2')).withdraw(new Big('0.3')).close();
  const classes = [WalletMoneyDepositedEvent, WalletMoneyWithdrawnEvent, WalletClosedEvent];
  const decoded = events.map((event, index) => {
    const payload: unknown = JSON.parse(encodePayload(event));
    return decodeEvent(classes[index]!, { model: Wallet, modelId: id.value, payload });
  });
  expect(decoded).toEqual(events);
});

import { describe, expect, test } from 'vitest';

import { Order, OrderShippedEvent } from '../../test/order.js';
import { Wallet, WalletDepositedEvent, WalletOpenedEvent } from '../../test/wallet.js';
import { Id, ShardedId } from '../id/id.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { Entity, type New, type NewEntity, rebuild } from './model.js';

const now = new Date('2026-01-02T03:04:05.006Z');
const later = new Date('2026-02-03T04:05:06.007Z');
const id = ShardedId.of(Wallet, '018f3c00-0000-7abc-8000-000000000000');
const fields = { id, state: 'OPENED', createdDate: now, ownerId: 'owner-1', balance: 100n } as const;

describe('a model', () => {
  test('starts at version 0, updated when it was created, without events', () => {
    const wallet = new Wallet(fields);
    expect(wallet.version).toBe(0);
    expect(wallet.updatedDate).toBe(now);
    expect(wallet.events).toEqual([]);
  });

  test('keeps the version, the dates and the events that it is given', () => {
    const events = [new WalletOpenedEvent(id, 'owner-1', 100n)];
    const wallet = new Wallet({ ...fields, version: 7, updatedDate: later, events });
    expect(wallet).toMatchObject({ version: 7, createdDate: now, updatedDate: later, events });
  });

  test('is independent of the list of events passed to it, and its own list is immutable', () => {
    const events = [new WalletOpenedEvent(id, 'owner-1', 100n)];
    const wallet = new Wallet({ ...fields, events });
    events.push(new WalletOpenedEvent(id, 'owner-2', 100n));
    expect(wallet.events).toHaveLength(1);
    for (const each of [wallet, new Wallet(fields), wallet.deposit(1n)])
      expect(() => (each.events as unknown[]).push(events[0])).toThrow(TypeError);
  });

  test('attaches events that it emits, in order', () => {
    const wallet = Wallet.open(ShardIdentifier.of(0, 0), 100n, now);
    expect(wallet.events).toEqual([new WalletOpenedEvent(wallet.id, 'owner-1', 100n)]);
    expect(wallet.version).toBe(0);
  });
});

describe('a copy', () => {
  const wallet = new Wallet({ ...fields, version: 3, updatedDate: later });

  test('has the changed fields, and all others unchanged', () => {
    const next = wallet.deposit(50n);
    expect(next).toBeInstanceOf(Wallet);
    expect(next).toMatchObject({ ...fields, balance: 150n, version: 3, updatedDate: later });
  });

  test('leaves the original model untouched', () => {
    const next = wallet.deposit(50n);
    expect(next).not.toBe(wallet);
    expect(wallet.balance).toBe(100n);
    expect(wallet.events).toEqual([]);
    next.deposit(1n);
    expect(next.events).toHaveLength(1);
  });

  test('attaches its events after those of earlier copies, in order', () => {
    const first = new WalletDepositedEvent(id, 8n, 8n);
    const second = new WalletDepositedEvent(id, 9n, 9n);
    const next = wallet.deposit(50n).close(first, second);
    expect(next.events).toEqual([new WalletDepositedEvent(id, 50n, 150n), first, second]);
  });

  test('changes the state', () => {
    expect(wallet.close().state).toBe('CLOSED');
  });

  test('checks the changed fields as the constructor does', () => {
    class Careless extends Wallet {
      forgetOwner(): Wallet {
        return this.copy({ ownerId: null as unknown as string });
      }
    }
    expect(() => new Careless(fields).forgetOwner()).toThrow(
      expect.objectContaining({ code: 'invalid-model', message: 'ownerId cannot be null' }),
    );
  });

  test('has the class of the original', () => {
    class SpecialWallet extends Wallet {}
    expect(new SpecialWallet(fields).deposit(1n)).toBeInstanceOf(SpecialWallet);
  });
});

/** A wallet whose constructor loses a field. */
function lossy(lost: string): Wallet {
  class LossyWallet extends Wallet {
    constructor(given: New<Wallet>) {
      super(Object.assign({}, given, { [lost]: undefined }));
    }
  }
  return new LossyWallet({ ...fields, version: 3, updatedDate: later });
}

describe('a constructor that drops arguments', () => {
  test('does not lose an event silently', () => {
    expect(() => lossy('events').deposit(1n)).toThrow(
      expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining('events') }),
    );
  });

  test.each(['id', 'version', 'createdDate', 'updatedDate'])('does not lose the %s silently', (field) => {
    expect(() => rebuild(lossy(field), { id, version: 4, createdDate: now, updatedDate: later })).toThrow(
      expect.objectContaining({ code: 'invariant-violation', message: expect.stringContaining(field) }),
    );
  });
});

test('a model that emits an event leaves its predecessor untouched', () => {
  const order = new Order({
    id: ShardedId.generate(Order, ShardIdentifier.of(0, 0)),
    state: 'PLACED',
    createdDate: now,
    lines: 2,
  });
  const shipped = order.ship();
  expect(shipped).toMatchObject({ lines: 2, events: [new OrderShippedEvent(order.id)] });
  expect(order.events).toEqual([]);
});

describe('a getter of a model', () => {
  class Patient extends Entity<Patient, Id<Patient>, 'OPEN'> {
    readonly visits: number;
    readonly #allergy: string | undefined;
    constructor(given: NewEntity<Patient>) {
      super(given);
      this.visits = given.visits;
      this.#allergy = given.allergy;
    }
    get allergy(): string | undefined {
      return this.#allergy;
    }
    get isNew(): boolean {
      return this.visits === 0;
    }
    get lastVisit(): number | undefined {
      return this.visits === 0 ? undefined : this.visits;
    }
    get average(): number {
      if (this.visits === 0) throw new Error('no visit yet');
      return 1 / this.visits;
    }
    with(changes: { readonly visits: number }): Patient {
      return this.copy(changes);
    }
  }
  const patient = (visits: number, allergy?: string): Patient =>
    new Patient({
      id: Id.of(Patient, 'patient-1'),
      state: 'OPEN',
      visits,
      allergy,
      isNew: false,
      lastVisit: undefined,
      average: 0,
    });

  test('that computes its value may have any value in a copy, or throw', () => {
    expect(patient(0).with({ visits: 1 })).toMatchObject({ visits: 1, isNew: false, lastVisit: 1 });
    expect(patient(1).with({ visits: 0 })).toMatchObject({ visits: 0, isNew: true, lastVisit: undefined });
  });

  test('that reads a private field is refused when a copy would lose its value', () => {
    expect(() => patient(1, 'penicillin').with({ visits: 2 })).toThrow(
      expect.objectContaining({
        code: 'invariant-violation',
        message: expect.stringMatching(/Patient would lose allergy: .*public readonly field/),
      }),
    );
  });
});

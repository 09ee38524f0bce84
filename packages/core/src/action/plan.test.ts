import { describe, expect, test } from 'vitest';

import { FakeRepository } from '../../test/fake-repository.js';
import { Address, Order, OrderShippedEvent } from '../../test/order.js';
import { VirtualClock } from '../../test/virtual-clock.js';
import { Wallet, WalletDepositedEvent } from '../../test/wallet.js';
import { type ExecutionLimits, defaultExecutionLimits } from '../config/settings.js';
import { ShardedId } from '../id/id.js';
import { ShardIdentifier } from '../id/shard-identifier.js';
import { EventTypes } from '../model/model-event.js';
import type { ModelMapper } from '../storage/repository.js';
import { Plan, sealPlan } from './plan.js';

const global = ShardIdentifier.of(0, 0);
const mexico = ShardIdentifier.of(1, 0);
const created = new Date('2026-01-01T00:00:00Z');

function planOf(
  options: {
    readonly limits?: Partial<ExecutionLimits>;
    readonly repositories?: readonly ModelMapper[];
  } = {},
): Plan {
  const repositories = (options.repositories ?? [
    new FakeRepository(Wallet),
    new FakeRepository(Address),
  ]) as readonly ModelMapper[];
  return new Plan({
    actionName: 'TestAction',
    repositories: new Map(repositories.map((repository) => [repository.model, repository])),
    limits: { ...defaultExecutionLimits, ...options.limits },
    clock: new VirtualClock('2026-05-05T05:05:05Z'),
    eventTypes: new EventTypes(),
  });
}

function storedWallet(version = 3, shard = global): Wallet {
  const id = ShardedId.generate(Wallet, shard);
  return new Wallet({
    id,
    state: 'OPENED',
    createdDate: created,
    ownerId: 'owner-1',
    balance: 100n,
    version,
  });
}

/** The contents of a plan, short enough to compare. */
function staged(plan: Plan): readonly unknown[] {
  return sealPlan(plan).map(({ shard, changes, events }) => ({
    shard: `${shard}`,
    changes: changes.map(({ kind, model, expectedVersion }) => [kind, model.id.value, expectedVersion]),
    events: events.map(({ type, ordinal, modelVersion }) => [type, ordinal, modelVersion]),
  }));
}

describe('add', () => {
  test('returns the model as version 1 without events, with the same dates', () => {
    const wallet = Wallet.open(global, 100n, created);
    const added = planOf().add(wallet);
    expect(added).toBeInstanceOf(Wallet);
    expect(added).toMatchObject({
      id: wallet.id,
      version: 1,
      updatedDate: created,
      events: [],
      balance: 100n,
    });
    expect(wallet).toMatchObject({ version: 0, events: [expect.anything()] });
  });

  test('stages the row of the next version and the events of the model', () => {
    const plan = planOf();
    const wallet = Wallet.open(global, 100n, created);
    plan.add(wallet);
    expect(sealPlan(plan)).toMatchObject([
      {
        shard: global,
        changes: [{ kind: 'add', expectedVersion: 0, row: { id: wallet.id.value, version: 1 } }],
        events: [
          {
            ordinal: 0,
            modelId: wallet.id.value,
            modelName: 'Wallet',
            modelVersion: 1,
            type: 'WalletOpenedEvent',
            payload: '{"ownerId":"owner-1","balance":"100"}',
          },
        ],
      },
    ]);
  });

  test.each<readonly [string, unknown]>([
    ['undefined', undefined],
    ['null', null],
    ['an object that is no model', {}],
    ['a promise, which it must await', Promise.resolve(Wallet.open(global, 100n, created))],
  ])('refuses %s by name, as update does', (named, value) => {
    const plan = planOf();
    const message = `TestAction stages ${named}: stage a model`;
    for (const stage of [() => plan.add(value as Wallet), () => plan.update(value as Wallet)])
      expect(stage).toThrow(expect.objectContaining({ code: 'invariant-violation', message }));
    expect(staged(plan)).toEqual([]);
  });

  test.each<readonly [string, unknown]>([
    ['undefined', undefined],
    ['one model', storedWallet()],
    ['a promise', Promise.resolve([])],
  ])('refuses %s in place of a list, as updating a list does', (_named, value) => {
    const plan = planOf();
    const message = expect.stringMatching(
      /^TestAction stages .+ with addAll or updateAll: pass a list of models$/,
    );
    for (const stage of [() => plan.addAll(value as Wallet[]), () => plan.updateAll(value as Wallet[])])
      expect(stage).toThrow(expect.objectContaining({ code: 'invariant-violation', message }));
  });

  test('refuses a model that was stored before', () => {
    expect(() => planOf().add(storedWallet())).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }),
    );
  });
});

describe('update', () => {
  test('returns the model one version higher, without events, updated by the clock', () => {
    const updated = planOf().update(storedWallet(3).deposit(5n));
    const now = new Date('2026-05-05T05:05:05Z');
    expect(updated).toMatchObject({
      version: 4,
      createdDate: created,
      updatedDate: now,
      events: [],
      balance: 105n,
    });
  });

  test('expects the version that was read', () => {
    const plan = planOf();
    const wallet = storedWallet(3);
    plan.update(wallet.deposit(5n).deposit(6n));
    const events = [
      ['WalletDepositedEvent', 0, 4],
      ['WalletDepositedEvent', 1, 4],
    ];
    expect(staged(plan)).toEqual([{ shard: `${global}`, changes: [['update', wallet.id.value, 3]], events }]);
  });

  test('refuses a model that was never stored', () => {
    expect(() => planOf().update(storedWallet(0))).toThrow(
      expect.objectContaining({ code: 'invariant-violation' }),
    );
  });

  test('stages an entity, which has neither events nor dates', () => {
    const plan = planOf();
    const id = ShardedId.generate(Address, mexico);
    const moved = plan.update(new Address({ id, state: 'KNOWN', city: 'Oslo', version: 1 }));
    expect(moved).toEqual(new Address({ id, state: 'KNOWN', city: 'Oslo', version: 2 }));
    expect(staged(plan)).toEqual([{ shard: `${mexico}`, changes: [['update', id.value, 1]], events: [] }]);
  });
});

test('addAll and updateAll stage in order and return what they staged', () => {
  const plan = planOf();
  const [first, second] = plan.addAll([Wallet.open(global, 1n, created), Wallet.open(global, 2n, created)]);
  const [third] = plan.updateAll([storedWallet(8)]);
  expect([first?.version, second?.version, third?.version]).toEqual([1, 1, 9]);
  expect(sealPlan(plan)[0]?.changes.map(({ model }) => model)).toEqual([first, second, third]);
});

test('a plan returns its shards in order, with ordinals that count across them', () => {
  const plan = planOf();
  const shards = [ShardIdentifier.of(1, 1), mexico, global];
  for (const shard of shards) plan.add(Wallet.open(shard, 1n, created));
  expect(staged(plan)).toMatchObject([
    { shard: `${global}`, events: [['WalletOpenedEvent', 2, 1]] },
    { shard: `${mexico}`, events: [['WalletOpenedEvent', 1, 1]] },
    { shard: 'shard (1, 1)', events: [['WalletOpenedEvent', 0, 1]] },
  ]);
});

describe('a refused model', () => {
  const known = Wallet.open(global, 1n, created);
  const fresh = Wallet.open(global, 2n, created);
  const foreign = new OrderShippedEvent(
    ShardedId.of(Order, fresh.id.value),
  ) as unknown as WalletDepositedEvent;
  const ofAnother = new WalletDepositedEvent(storedWallet().id, 1n, 1n);
  const unstorable = new WalletDepositedEvent(fresh.id, '1' as unknown as bigint, 1n);
  const order = new Order({
    id: ShardedId.generate(Order, global),
    state: 'PLACED',
    createdDate: created,
    lines: 1,
  });

  test.each<[string, Wallet | Order, string]>([
    ['has an id that is staged already', known, 'staged-twice'],
    ['has no repository', order, 'invariant-violation'],
    ['has an event of another class of models', fresh.close(foreign), 'invariant-violation'],
    ['has an event of another model', fresh.close(ofAnother), 'invariant-violation'],
    ['has an event that does not fit its schema', fresh.close(unstorable), 'unstorable-value'],
  ])('leaves the plan as it was when it %s', (_why, model, code) => {
    const plan = planOf();
    plan.add(known);
    expect(() => plan.add(model)).toThrow(expect.objectContaining({ code }));
    const [event] = fresh.events;
    plan.add(fresh);
    expect(event).toBeDefined();
    expect(staged(plan)).toEqual([
      {
        shard: `${global}`,
        changes: [
          ['add', known.id.value, 0],
          ['add', fresh.id.value, 0],
        ],
        events: [
          ['WalletOpenedEvent', 0, 1],
          ['WalletOpenedEvent', 1, 1],
        ],
      },
    ]);
  });

  test.each([
    ['repository', { encode: failOnce(new RangeError('no row')) }],
    [
      'strategy',
      {
        strategy: { shardOfModel: failOnce(new RangeError('no shard'), global), shardOfId: () => undefined },
      },
    ],
  ])('can be staged later when its %s refused it', (_which, options) => {
    const plan = planOf({ repositories: [new FakeRepository(Wallet, options)] });
    expect(() => plan.add(fresh)).toThrow(RangeError);
    plan.add(fresh);
    expect(staged(plan)).toEqual([
      {
        shard: `${global}`,
        changes: [['add', fresh.id.value, 0]],
        events: [['WalletOpenedEvent', 0, 1]],
      },
    ]);
  });

  test('may be a later version of a model that is already staged', () => {
    const plan = planOf();
    const added = plan.add(fresh);
    expect(() => plan.update(added.deposit(1n))).toThrow(
      expect.objectContaining({ code: 'staged-twice', model: 'Wallet', id: fresh.id.value }),
    );
  });
});

/** A function that throws on its first call and returns the value afterwards. */
function failOnce<T>(failure: Error, value?: T): () => T {
  let called = false;
  return () => {
    if (called) return value as T;
    called = true;
    throw failure;
  };
}

describe('the limits', () => {
  const wallets = Array.from({ length: 3 }, () => Wallet.open(global, 1n, created));

  test.each([
    ['changesMax', { changesMax: 2 }, 2],
    ['eventsMax', { eventsMax: 2 }, 2],
  ])('refuse what goes beyond %s, and keep what is staged', (limit, limits, maximum) => {
    const plan = planOf({ limits });
    plan.addAll(wallets.slice(0, 2));
    expect(() => plan.add(wallets[2]!)).toThrow(
      expect.objectContaining({ code: 'limit-exceeded', limit, maximum }),
    );
    expect(sealPlan(plan)[0]).toMatchObject({ changes: { length: 2 }, events: { length: 2 } });
  });

  test('count the events of one model together', () => {
    const plan = planOf({ limits: { eventsMax: 2 } });
    const busy = storedWallet().deposit(1n).deposit(2n).deposit(3n);
    expect(() => plan.update(busy)).toThrow(expect.objectContaining({ limit: 'eventsMax' }));
    expect(sealPlan(plan)).toEqual([]);
  });

  test('allow a payload of exactly payloadCharactersMax and none beyond', () => {
    const payload = '{"ownerId":"owner-1","balance":"1"}';
    planOf({ limits: { payloadCharactersMax: payload.length } }).add(wallets[0]!);
    const plan = planOf({ limits: { payloadCharactersMax: payload.length - 1 } });
    expect(() => plan.add(wallets[0]!)).toThrow(
      expect.objectContaining({ code: 'limit-exceeded', limit: 'payloadCharactersMax' }),
    );
    expect(sealPlan(plan)).toEqual([]);
  });
});

test('a sealed plan refuses everything', () => {
  const plan = planOf();
  expect(plan.sealed).toBe(false);
  sealPlan(plan);
  expect(plan.sealed).toBe(true);
  const refused = expect.objectContaining({ code: 'plan-sealed' });
  expect(() => plan.add(Wallet.open(global, 1n, created))).toThrow(refused);
  expect(() => plan.update(storedWallet())).toThrow(refused);
  expect(() => plan.addAll([Wallet.open(global, 1n, created)])).toThrow(refused);
  expect(() => plan.updateAll([storedWallet()])).toThrow(refused);
});

test('a plan exposes none of its contents, so no action can write a row without its event', () => {
  const plan = planOf();
  const names = [...Object.keys(plan), ...Object.getOwnPropertyNames(Object.getPrototypeOf(plan))];
  expect(names.sort()).toEqual(['add', 'addAll', 'constructor', 'sealed', 'update', 'updateAll']);
});

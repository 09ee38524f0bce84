import { Account, SuiteContext, changeSetOf, firstShard, once } from '@framework/conformance';
import { describe, expect, test } from 'vitest';

import {
  ConnectionLostError,
  MemoryAccess,
  MemoryDeliveryStore,
  type MemoryFaults,
  type MemoryMessage,
  MemoryServer,
} from '../../src/memory/index.js';
import { MemoryFixture, suiteSharding } from './memory-fixture.js';

function opened(): { readonly fixture: MemoryFixture; readonly context: SuiteContext } {
  const fixture = new MemoryFixture();
  const context = new SuiteContext();
  context.open(fixture);
  return { fixture, context };
}

/** Loses the connection once, at a certain message. */
function losing(
  operation: MemoryMessage['operation'],
  way: MemoryMessage['way'],
  loss: ConnectionLostError = new ConnectionLostError(),
) {
  let isLost = false;
  return (message: MemoryMessage): undefined => {
    if (isLost || message.operation !== operation || message.way !== way) return;
    isLost = true;
    throw loss;
  };
}

/** The requests to the databases of a process, in order. */
function recording(faults: MemoryFaults): readonly MemoryMessage[] {
  const messages: MemoryMessage[] = [];
  faults.inject((message) => void messages.push(message));
  return messages;
}

/** Whether something is over once everything that can run has run. */
async function isOver(work: Promise<unknown>): Promise<boolean> {
  let over = false;
  const end = (): void => void (over = true);
  work.then(end, end);
  await new Promise((resolve) => setImmediate(resolve));
  return over;
}

describe('the connection to in-memory databases', () => {
  test('carries every request of a process and its answer', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    const messages = recording(fixture.faults);
    const manager = fixture.databases.transactionManager(firstShard);
    const { delivery } = new MemoryServer(suiteSharding).tables(firstShard);
    const store = new MemoryDeliveryStore(new MemoryAccess(delivery, fixture.faults, firstShard));
    await context.withdraw(account, '0', { idempotencyKey: 'once' });
    await manager.inTransaction(async () => undefined);
    await manager.log.findByModel({ name: 'Account', id: account.id.value }, { limit: 1 });
    await manager.keys.findHandlerKeys({ olderThanMs: 0, limit: 1 });
    await manager.keys.deleteExpired(1);
    await manager.keys.delete([]);
    await fixture.databases.ready();
    await fixture.databases.status();
    await store.cursors.lag();
    await store.leases.renew('one', [], 1_000);
    const asked = (way: MemoryMessage['way']): readonly string[] =>
      messages.filter((message) => message.way === way).map(({ operation }) => operation);
    expect(new Set(asked('request'))).toEqual(
      new Set([
        'find-key',
        'read',
        'persist',
        'commit',
        'find-events',
        'find-handler-keys',
        'delete-expired-keys',
        'delete-keys',
        'ready',
        'ping',
        'cursors.lag',
        'leases.renew',
      ]),
    );
    expect(asked('answer').toSorted()).toEqual(asked('request').toSorted());
    const persist = messages.find(({ operation }) => operation === 'persist');
    expect(persist?.changes).toMatchObject([{ action: { name: 'WithdrawAction' } }]);
  });

  test('is as slow as a fault makes it, and returns the answer as of its request', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    const gate = Promise.withResolvers<void>();
    fixture.faults.inject(({ operation, way }) =>
      operation === 'read' && way === 'answer' ? gate.promise : undefined,
    );
    const late = fixture.accounts.getById(account.id);
    const all = fixture.accounts.findAll();
    fixture.faults.inject(undefined);
    await context.credit(account, '1');
    gate.resolve();
    expect(await late).toEqual(account);
    expect(await all).toEqual([account]);
  });

  test.each([
    ['request', 1],
    ['answer', 2],
  ] as const)('may lose the %s of a write, whose outcome is found in the log', async (way, version) => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    fixture.faults.inject(losing('persist', way));
    const outcome = await context.credit(account, '1', once).then(
      () => 'done',
      (error: { readonly code: string }) => error.code,
    );
    expect(outcome).toBe(way === 'answer' ? 'done' : 'transient-storage');
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ version });
  });

  test('leaves an outcome unknown when the log cannot be reached', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    fixture.faults.inject(({ operation }) => {
      if (operation !== 'read') throw new ConnectionLostError();
      return undefined;
    });
    await expect(context.credit(account, '1', once)).rejects.toMatchObject({
      code: 'commit-outcome-unknown',
    });
  });

  test('reports a read on a lost connection as transient', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    fixture.faults.inject(losing('read', 'request'));
    const manager = fixture.databases.transactionManager(firstShard);
    await expect(fixture.accounts.findById(account.id)).rejects.toMatchObject({ code: 'transient-storage' });
    fixture.faults.inject(losing('find-key', 'answer'));
    const scope = { namespace: 'a', principal: 'b', key: 'c' };
    await expect(manager.keys.find(scope)).rejects.toMatchObject({ code: 'transient-storage' });
    expect(account).toBeInstanceOf(Account);
  });

  test('returns errors of the database as answers, which may be lost as well', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    const stale = changeSetOf(fixture.accounts, account.variant({ version: 5 }), []);
    const messages = recording(fixture.faults);
    const manager = fixture.databases.transactionManager(firstShard);
    await expect(manager.persist(stale)).rejects.toMatchObject({ code: 'stale-record' });
    expect(messages.map(({ error }) => error)).toMatchObject([undefined, { code: 'stale-record' }]);
    fixture.faults.inject(losing('persist', 'answer'));
    await expect(manager.persist(stale)).rejects.toMatchObject({ code: 'commit-outcome-unknown' });
  });

  test('may deliver a write late, and a query for its outcome waits for it', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    const arrival = Promise.withResolvers<void>();
    let doneCount = 0;
    const loss = new ConnectionLostError({ arrival: arrival.promise, onDone: () => doneCount++ });
    fixture.faults.inject(losing('persist', 'request', loss));
    const credited = context.credit(account, '1', once);
    expect(await isOver(credited)).toBe(false);
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ version: 1 });
    expect(doneCount).toBe(0);
    const countAtOnce = arrival.promise.then(() => doneCount);
    arrival.resolve();
    expect(await countAtOnce).toBe(1);
    expect(await credited).toMatchObject({ version: 2 });
    expect(doneCount).toBe(1);
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ version: 2 });
  });

  test('ends with its process, which receives no more answers or notifications', async () => {
    const { fixture, context } = opened();
    const account = await context.openAccount();
    const { store } = fixture.databases.deliveries()[0]!;
    let notifications = 0;
    await store.notifications.listen(() => notifications++);
    await store.notifications.notify();
    expect(notifications).toBe(1);
    const gate = Promise.withResolvers<void>();
    fixture.faults.inject(({ way }) => (way === 'answer' ? gate.promise : undefined));
    const credited = context.credit(account, '1');
    const read = fixture.accounts.findAll();
    fixture.faults.kill();
    gate.resolve();
    expect(await Promise.all([credited, read, store.notifications.notify()].map(isOver))).toEqual([
      false,
      false,
      false,
    ]);
    expect(notifications).toBe(1);
  });

  test('may lose and delay notifications', async () => {
    const { fixture } = opened();
    const { store } = fixture.databases.deliveries()[0]!;
    let notifications = 0;
    await store.notifications.listen(() => notifications++);
    fixture.faults.inject(losing('notifications.hear', 'request'));
    await store.notifications.notify();
    const gate = Promise.withResolvers<void>();
    fixture.faults.inject(({ operation }) => (operation === 'notifications.hear' ? gate.promise : undefined));
    await store.notifications.notify();
    expect(notifications).toBe(0);
    gate.resolve();
    await isOver(gate.promise);
    expect(notifications).toBe(1);
  });

  test('may lose an answer to delivery after the work is done', async () => {
    const { fixture } = opened();
    const { store } = fixture.databases.deliveries()[0]!;
    fixture.faults.inject(losing('leases.renew', 'answer'));
    await expect(store.leases.renew('one', [], 1_000)).rejects.toMatchObject({ code: 'transient-storage' });
    await store.cursors.register({ name: 'a', aliases: [], startFrom: 'beginning' });
    expect((await store.leases.renew('two', ['a'], 1_000)).alone).toBe(false);
  });
});

import {
  type Account,
  SuiteContext,
  changeSetOf,
  decimal,
  firstShard,
  once,
  otherDatabaseShard,
} from '@framework/conformance';
import { ShardIdentifier, openDatabases } from '@framework/core';
import { Delivery } from '@framework/events';
import { describe, expect, test } from 'vitest';

import { VirtualClock } from '../../src/index.js';
import { ConnectionLostError, MemoryServer, memory, memorySharding } from '../../src/memory/index.js';
import { onCredit } from '../specification/accounts.js';
import { MemoryFixture, suiteSharding } from './memory-fixture.js';

/** One process with the suite's actions on the databases of a server. */
function processOn(server: MemoryServer): {
  readonly fixture: MemoryFixture;
  readonly context: SuiteContext;
} {
  const fixture = new MemoryFixture(server);
  const context = new SuiteContext();
  context.open(fixture);
  return { fixture, context };
}

describe('a server of in-memory databases', () => {
  test('serves several processes, each over a connection of its own', async () => {
    const server = new MemoryServer(suiteSharding);
    const [one, other] = [processOn(server), processOn(server)];
    const account = await one.context.openAccount(otherDatabaseShard);
    one.fixture.faults.kill();
    expect(await other.fixture.accounts.getById(account.id)).toEqual(account);
    await other.context.credit(account, '1');
    expect(server.tables(otherDatabaseShard).commits.map(({ position }) => position)).toEqual([0, 1]);
    expect(server.databases).toEqual([server.tables(firstShard), server.tables(otherDatabaseShard)]);
  });

  test('delivers in one process what another committed, and in a third after the first vanishes', async () => {
    const clock = new VirtualClock();
    const server = new MemoryServer(suiteSharding, { clock });
    const seen: string[] = [];
    const start = (name: string): MemoryFixture => {
      const { fixture, context } = processOn(server);
      const handlers = [
        onCredit(async ({ modelVersion }) => void seen.push(`${name} ${modelVersion}`), {
          startFrom: 'beginning',
        }),
      ];
      const { databases } = fixture;
      new Delivery({ databases, executor: context.executor, handlers, clock }).start();
      return fixture;
    };
    const { context } = processOn(server);
    const account = await context.openAccount();
    const first = start('first');
    await context.credit(account, '1');
    await clock.advance(1_000);
    first.faults.kill();
    start('second');
    await context.credit(account, '1');
    await clock.advance(120_000);
    expect(seen).toEqual(['first 2', 'second 3']);
  });

  test('lets a process know only some of its shards', async () => {
    const server = new MemoryServer(suiteSharding);
    const { context } = processOn(server);
    await context.openAccount(otherDatabaseShard);
    const members = suiteSharding.members.filter(({ shard }) => shard === otherDatabaseShard);
    const databases = openDatabases({ defaultShard: otherDatabaseShard, members }, memory({ server }));
    expect(databases.shards).toEqual([otherDatabaseShard]);
    expect(await databases.deliveries()[0]!.store.cursors.lag()).toEqual([]);
    expect(() => server.tables(ShardIdentifier.of(9, 9))).toThrow(
      expect.objectContaining({ code: 'unknown-shard' }) as Error,
    );
    const elsewhere = memorySharding(firstShard, otherDatabaseShard, ShardIdentifier.of(2, 0));
    expect(() => openDatabases(elsewhere, memory({ server }))).toThrow(
      expect.objectContaining({ code: 'invalid-configuration' }) as Error,
    );
  });
});

describe('an in-memory database that fails over', () => {
  test('loses the rows, keys and events that its replica had not received', async () => {
    const server = new MemoryServer(suiteSharding);
    const { context, fixture } = processOn(server);
    const account = await context.openAccount(firstShard, { balance: decimal('100') });
    await context.withdraw(account, '1', { idempotencyKey: 'first' });
    const replica = server.tables(firstShard).snapshot();
    await context.withdraw(account, '10', { idempotencyKey: 'second' });
    await context.openAccount();
    server.tables(firstShard).failOver(replica);
    expect(await fixture.accounts.findAll()).toMatchObject([{ id: account.id, version: 2 }]);
    expect(await fixture.keyCount(firstShard)).toBe(1);
    expect(await context.storedEvents(firstShard)).toHaveLength(2);
    // The withdrawal is repeated with its key, and happens once.
    await context.withdraw(account, '10', { idempotencyKey: 'second' });
    await context.withdraw(account, '1', { idempotencyKey: 'first' });
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ balance: decimal('89') });
  });

  test('leaves the replica unchanged, for another failover to it', async () => {
    const server = new MemoryServer(suiteSharding);
    const { context, fixture } = processOn(server);
    const account = await context.openAccount();
    const replica = server.tables(firstShard).snapshot();
    for (let round = 0; round < 2; round++) {
      server.tables(firstShard).failOver(replica);
      await context.credit(account, '1');
    }
    server.tables(firstShard).failOver(replica);
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ version: 1 });
  });

  test('continues from the state of a database on another server', async () => {
    const [server, other] = [new MemoryServer(suiteSharding), new MemoryServer(suiteSharding)];
    const account = await processOn(server).context.openAccount();
    other.tables(firstShard).failOver(server.tables(firstShard).snapshot());
    const { fixture, context } = processOn(other);
    await context.credit(account, '1');
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ version: 2 });
    expect(await processOn(server).fixture.accounts.getById(account.id)).toMatchObject({ version: 1 });
  });

  test('never reports a commit that was sent before the failover as missing', async () => {
    const server = new MemoryServer(suiteSharding);
    const { context, fixture } = processOn(server);
    const account = await context.openAccount();
    const manager = fixture.databases.transactionManager(firstShard);
    const lost = async (way: 'request' | 'answer', base: Account): Promise<never> => {
      const next = base.credit('1').variant({ version: base.version + 1, events: [] });
      fixture.faults.inject((message) => {
        if (message.way === way) throw new ConnectionLostError();
        return undefined;
      });
      const error = await manager.persist(changeSetOf(fixture.accounts, next, [])).catch((each) => each);
      fixture.faults.inject(undefined);
      return error as never;
    };
    const notSent = await lost('request', account);
    expect(await manager.isCommitted(notSent)).toBe(false);
    const written = await lost('answer', account);
    const crashed = server.tables(firstShard).snapshot();
    const [current] = await fixture.accounts.findAll();
    const writtenLater = await lost('answer', current!);
    server.tables(firstShard).failOver(crashed);
    expect(await manager.isCommitted(written)).toBe(true);
    for (const error of [notSent, writtenLater]) await expect(manager.isCommitted(error)).rejects.toBe(error);
  });

  test('never receives late requests that were sent before the failover', async () => {
    const server = new MemoryServer(suiteSharding);
    const { context, fixture } = processOn(server);
    const account = await context.openAccount();
    const arrival = Promise.withResolvers<void>();
    fixture.faults.inject(({ operation }) => {
      if (operation === 'persist') throw new ConnectionLostError({ arrival: arrival.promise });
      return undefined;
    });
    const credited = context.credit(account, '1', once);
    await new Promise((resolve) => setImmediate(resolve));
    server.tables(firstShard).failOver(server.tables(firstShard).snapshot());
    arrival.resolve();
    await expect(credited).rejects.toMatchObject({ code: 'commit-outcome-unknown' });
    expect(await fixture.accounts.getById(account.id)).toMatchObject({ version: 1 });
  });
});

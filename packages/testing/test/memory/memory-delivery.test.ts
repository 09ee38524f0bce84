import {
  type AccountCreditedEvent,
  SuiteContext,
  decimal,
  firstShard,
  otherDatabaseShard,
  sameDatabaseShard,
} from '@framework/conformance';
import { Delivery, type EventEnvelope } from '@framework/events';
import { describe, expect, test } from 'vitest';
import { VirtualClock } from '../../src/index.js';
import { groupCommit } from '../group-commit.js';
import { onCredit } from '../specification/accounts.js';
import { MemoryFixture } from './memory-fixture.js';

/** The suite's accounts in memory, with a handler of credits. */
function delivering(): {
  readonly context: SuiteContext;
  readonly seen: EventEnvelope<never>[];
  readonly clock: VirtualClock;
} {
  const context = new SuiteContext();
  context.open(new MemoryFixture(), { groupCommit });
  const clock = new VirtualClock();
  const seen: EventEnvelope<never>[] = [];
  const { executor, fixture } = context;
  const handlers = [
    onCredit(async (envelope) => void seen.push(envelope as never), { startFrom: 'beginning' }),
  ];
  new Delivery({ databases: fixture.databases, executor, handlers, clock }).start();
  return { context, seen, clock };
}

describe('in-memory databases', () => {
  test('deliver the events of every shard, with those of one model in order', async () => {
    const { context, seen, clock } = delivering();
    for (const shard of [firstShard, sameDatabaseShard, otherDatabaseShard]) {
      const account = await context.openAccount(shard);
      for (const amount of ['1', '2']) await context.credit(account, amount);
    }
    await clock.advance(1_000);
    const byShard = Map.groupBy(seen, ({ shard }) => shard);
    expect(new Set(byShard.keys())).toEqual(new Set([firstShard, sameDatabaseShard, otherDatabaseShard]));
    for (const envelopes of byShard.values())
      expect(envelopes.map(({ payload }) => payload)).toMatchObject([
        { amount: decimal('1') },
        { amount: decimal('2') },
      ]);
  });

  test('give each handler copies of its own, whatever another handler does to its copies', async () => {
    const context = new SuiteContext();
    context.open(new MemoryFixture(), { groupCommit });
    const clock = new VirtualClock();
    const seen: unknown[] = [];
    const spoil = async (envelope: EventEnvelope<AccountCreditedEvent>): Promise<void> => {
      seen.push(
        { ...(envelope.payload as object) },
        { ...(envelope.actionParams as object) },
        { ...envelope.headers },
      );
      for (const part of [envelope.payload, envelope.actionParams, envelope.headers])
        Object.assign(part as object, { amount: 'changed', spoilt: 'yes' });
    };
    const names = ['one', 'other'];
    const handlers = names.map((name) => onCredit(spoil, { name, startFrom: 'beginning' }));
    const { executor, fixture } = context;
    new Delivery({ databases: fixture.databases, executor, handlers, clock }).start();
    await context.credit(await context.openAccount(), '1');
    await clock.advance(1_000);
    expect(seen).toHaveLength(6);
    expect(seen.slice(3)).toEqual(seen.slice(0, 3));
  });

  test("pass copies of the log's events to a handler", async () => {
    const { context, seen, clock } = delivering();
    await context.credit(await context.openAccount(), '1');
    await clock.advance(1_000);
    Object.assign(seen[0]?.payload as object, { amount: 'changed' });
    expect((await context.storedEvents()).at(-1)).toMatchObject({ payload: { amount: decimal('1') } });
  });
});

import { ShardIdentifier } from '@framework/core';
import type { DeliverableEvent, BlockedHead } from '@framework/core/adapter';
import { PartialBatchError } from '@framework/events';
import { expect, test } from 'vitest';

import {
  ConnectionLostError,
  MemoryAccess,
  MemoryDeliveryStore,
  MemoryFaults,
  MemoryTables,
} from '../../memory/index.js';
import { VirtualClock } from '../../virtual-clock.js';
import { History } from '../history.js';
import { StepOwner } from '../scheduler.js';
import { DeliveryWatch, errorsOf } from './delivery-watch.js';

const shard = ShardIdentifier.of(0, 0);
const leaseMs = 3_000;
const handler = 'notify';

const event: DeliverableEvent = {
  id: 'event-1',
  slot: 0,
  namespace: 'test',
  actionId: 'action-1',
  actionName: 'WriteAction',
  actionParams: {},
  principal: 'somebody',
  ordinal: 0,
  modelId: 'model-1',
  modelName: 'Note',
  modelVersion: 1,
  type: 'NoteWrittenEvent',
  payload: {},
  headers: {},
  startedDate: new Date(0),
  createdDate: new Date(0),
};

/** The next event of the model. */
const later: DeliverableEvent = { ...event, id: 'event-2', modelVersion: 2 };

/** A database with one slot and one event, in which every answer to a process is watched. */
async function watchedDatabase() {
  const clock = new VirtualClock();
  const tables = new MemoryTables(clock, 1, () => 0);
  const history = new History();
  const scheduler = {
    stepCount: 0,
    get nowMs() {
      return clock.elapsedMs();
    },
  };
  const settings = { leaseMs, attemptsMax: 2 };
  const watch = new DeliveryWatch({
    databases: [tables],
    versions: {
      last: [],
      nameOf: (name) => name,
      namesIn: (version) => [['notify'], ['another']][version] ?? [],
    },
    settings,
    scheduler,
    history,
  });
  const processOf = (name: string, version: number) => {
    const owner = new StepOwner(name);
    const faults = new MemoryFaults((message) => {
      if (message.way === 'answer') watch.answered({ owner, version }, message, tables);
      return undefined;
    });
    const store = new MemoryDeliveryStore(new MemoryAccess(tables.delivery, faults, shard));
    const renew = async (...givenBack: readonly string[]): Promise<string> => {
      watch.asksForLeases(owner, tables);
      const { leases } = await store.leases.renew(name, [handler], leaseMs, [], givenBack);
      watch.getsLeases(owner, tables);
      scheduler.stepCount++;
      return leases[0]?.token ?? 'none';
    };
    const call = (
      declared: { readonly name?: string; readonly whenBatchFails?: 'wait' } = {},
      eventIds = [event.id],
    ) => {
      const onEnded = watch.begins({ process: owner, options: { name: handler, ...declared }, eventIds });
      return (thrown: unknown) => onEnded(errorsOf(thrown, eventIds));
    };
    const handle = (): void => {
      const options = { name: handler };
      watch.begins({ process: owner, options, eventIds: [event.id] })({
        errors: new Map(),
        isPartial: false,
      });
    };
    return { owner, faults, store, renew, call, handle };
  };
  const [one, other] = [processOf('p1', 0), processOf('p2', 1)];
  await one.store.cursors.register({ name: handler, aliases: [], startFrom: 'beginning' });
  tables.delivery.commit(event);
  return { clock, tables, watch, history, violations: history.violations, one, other };
}

const failed = { handler, event, attempt: undefined, uncounted: 0, error: 'x', retryAfterMs: 0 };

test('a call under a valid lease is allowed', async () => {
  const { clock, one, violations } = await watchedDatabase();
  await one.renew();
  await clock.advance(leaseMs);
  one.call();
  expect(violations).toEqual([]);
});

test('a call after the end of its lease is a violation, unless the process has just resumed', async () => {
  const { clock, one, violations } = await watchedDatabase();
  await one.renew();
  await clock.advance(leaseMs + 1);
  one.owner.resumedMs = clock.elapsedMs();
  one.call();
  expect(violations).toEqual([]);
  await clock.advance(1);
  one.call();
  expect(violations).toEqual([expect.stringMatching(/^p1 calls notify .* whose lease has ended/)]);
});

test('a call by a process that never had the lease is a violation', async () => {
  const { one, other, violations } = await watchedDatabase();
  await one.renew();
  await other.renew();
  other.call();
  expect(violations).toEqual([expect.stringContaining('without ever having had its lease')]);
});

test('a call after a renewal that lost the slot is a violation', async () => {
  const { tables, one, violations } = await watchedDatabase();
  await one.renew();
  tables.delivery.hand({ handler, slot: 0 }, 'p2', false);
  const { timeline } = tables.delivery;
  tables.delivery.processes.set('p2', {
    handlers: [handler],
    shards: [],
    untilMs: Infinity,
    leaseMs,
    timeline,
  });
  one.call();
  expect(violations).toEqual([]);
  await one.renew();
  one.call();
  expect(violations).toEqual([expect.stringContaining('whose lease it has lost')]);
});

test('a slot that is given away during its lease is a violation', async () => {
  const { tables, one, other, violations } = await watchedDatabase();
  await one.renew();
  tables.delivery.hand({ handler, slot: 0 }, undefined, false);
  await other.renew();
  expect(violations).toEqual([expect.stringContaining('p2 is given slot 0 of notify, which p1 holds')]);
});

test('a slot that is given back while its handler is being called is a violation', async () => {
  const { one, other, violations } = await watchedDatabase();
  const token = await one.renew();
  // It knows more shards, so that the first one has no share.
  await other.store.leases.renew('p2', [handler], leaseMs, ['(0, 1)']);
  const ends = one.call();
  await one.renew(token);
  expect(violations).toEqual([expect.stringContaining('p1 gives notify 0 back while it calls the handler')]);
  ends(undefined);

  await other.store.leases.release('p2');
  const next = await one.renew();
  one.call()(undefined);
  await one.renew(next);
  expect(violations).toHaveLength(1);
});

test('a slot that was released or whose lease has ended may go to another process', async () => {
  const { clock, one, other, violations } = await watchedDatabase();
  await one.renew();
  await one.store.leases.release('p1');
  await other.renew();
  await clock.advance(leaseMs + 1);
  await one.renew();
  one.call();
  expect(violations).toEqual([]);
});

test('a process may call a handler whose current name a failover has lost', async () => {
  const { tables, one, violations } = await watchedDatabase();
  const replica = tables.delivery.snapshot();
  await one.store.cursors.register({ name: 'tell', aliases: [handler], startFrom: 'beginning' });
  await one.renew();
  tables.delivery.failOver(replica);
  await one.renew();
  one.call({ name: 'tell' });
  expect(violations).toEqual([]);
});

test('a process may call a handler under an id lost in a failover until it learns of the loss', async () => {
  const { clock, tables, one, other, violations } = await watchedDatabase();
  await one.renew();
  tables.delivery.failOver(new MemoryTables(clock, 1, () => 0).delivery.snapshot());
  tables.delivery.commit(event);
  await other.store.cursors.register({ name: 'another', aliases: [handler], startFrom: 'beginning' });
  one.call();
  expect(violations).toEqual([]);
});

test('a process that renews its leases after their end is counted', async () => {
  const { clock, one, history } = await watchedDatabase();
  await one.renew();
  await clock.advance(leaseMs - 1);
  await one.renew();
  expect(history.counts.get('lost lease')).toBeUndefined();
  await clock.advance(leaseMs);
  await one.renew();
  expect(history.counts.get('lost lease')).toBe(1);
});

test('a write by a process that does not hold the slot is a violation', async () => {
  const { tables, one, other, violations } = await watchedDatabase();
  const token = await one.renew();
  await other.renew();
  const [cursor] = await one.store.cursors.load([0]);
  await one.store.cursors.save([{ handler, slot: 0, token, cursor: cursor?.cursor ?? '' }]);
  await one.store.blocked.fail([{ ...failed, token, attempts: 1, dead: false }]);
  expect(violations).toEqual([]);
  tables.delivery.cursors.set(`${handler} 0`, 1);
  tables.delivery.blocked.clear();
  await other.store.cursors.save([]);
  await other.store.blocked.fail([]);
  expect(violations).toEqual([
    expect.stringContaining('p2 moves the cursor of notify in slot 0, which it does not hold'),
    expect.stringContaining('p2 writes blocked models of notify in slot 0, which it does not hold'),
  ]);
});

test('a cursor that moves back is a violation', async () => {
  const { tables, one, violations } = await watchedDatabase();
  await one.renew();
  tables.delivery.cursors.set(`${handler} 0`, 1);
  await one.store.cursors.save([]);
  tables.delivery.cursors.set(`${handler} 0`, 0);
  await one.store.cursors.save([]);
  expect(violations).toEqual([expect.stringContaining('p1 moves the cursor of notify back in slot 0')]);
});

test('a call of a handler that was paused before the lease began is a violation', async () => {
  const { tables, one, violations } = await watchedDatabase();
  tables.delivery.handlers.set(handler, true);
  await one.renew();
  one.call();
  expect(violations).toEqual([expect.stringContaining('although the handler was paused')]);
});

test('a handler may be called if it was paused in the same millisecond, after the lease began', async () => {
  const { tables, one, other, violations } = await watchedDatabase();
  await one.renew();
  tables.delivery.handlers.set(handler, true);
  await other.store.cursors.load([0]);
  one.call();
  expect(violations).toEqual([]);
});

test('an event that is handled again under the same lease is a violation', async () => {
  const { clock, one, violations } = await watchedDatabase();
  await one.renew();
  one.handle();
  await clock.advance(leaseMs);
  await one.renew();
  one.handle();
  expect(violations).toEqual([]);
  one.handle();
  expect(violations).toEqual([expect.stringContaining('again, which it has handled under the same lease')]);
});

test('an event of a model that opens is not handled again, unless a late statement blocks the model', async () => {
  const { tables, watch, one, violations } = await watchedDatabase();
  const token = await one.renew();
  const failure = { ...failed, token, attempts: 1, dead: false };
  const { slot, modelName, modelId } = event;
  const position = { modelVersion: 1, ordinal: 1 };
  const move = { handler, slot, token, modelName, modelId, position, ends: true };
  await one.store.blocked.fail([failure]);
  one.handle();
  await one.store.blocked.move([move]);
  one.handle();
  expect(violations).toEqual([expect.stringContaining('again, which it has handled under the same lease')]);
  const late = Promise.withResolvers<void>();
  one.faults.inject((message) => {
    const onDone = () => {
      watch.answered({ owner: one.owner, version: 0 }, message, tables, true);
      late.resolve();
    };
    return Promise.reject(new ConnectionLostError({ arrival: Promise.resolve(), onDone }));
  });
  await expect(one.store.blocked.fail([failure])).rejects.toMatchObject({ code: 'transient-storage' });
  await late.promise;
  one.handle();
  expect(violations).toHaveLength(1);
});

test.each([
  ['has attempts left after two batches that failed as a whole', () => new Error('all'), 1],
  [
    'has attempts left after two batches that named it as waiting',
    () => new PartialBatchError([], { waiting: [event.id, later.id] }),
    1,
  ],
  [
    'has no attempts left after two batches that named it as failed',
    () => new PartialBatchError([event, later].map(({ id }) => ({ eventId: id, error: 'x' }))),
    0,
  ],
])('an event %s', async (_what, thrown, violationCount) => {
  const { tables, one, violations } = await watchedDatabase();
  tables.delivery.commit(later);
  const token = await one.renew();
  for (let count = 0; count < 2; count++) one.call({}, [event.id, later.id])(thrown());
  await one.store.blocked.fail([{ ...failed, token, attempts: 2, dead: true }]);
  expect(violations.filter((text) => text.includes('with 2 of 2 attempts left'))).toHaveLength(
    violationCount,
  );
  expect(violations).toHaveLength(violationCount);
});

test('an event behind a failed one of its model uses no attempt in a batch', async () => {
  const { tables, one, violations } = await watchedDatabase();
  tables.delivery.commit(later);
  const token = await one.renew();
  const failures = [event, later].map(({ id }) => ({ eventId: id, error: 'x' }));
  for (let count = 0; count < 2; count++) one.call({}, [event.id, later.id])(new PartialBatchError(failures));
  await one.store.blocked.fail([{ ...failed, token, event: later, attempts: 2, dead: true }]);
  expect(violations).toEqual([expect.stringContaining('with 2 of 2 attempts left')]);
});

test('an event becomes a dead letter after all its attempts, and not before', async () => {
  const { one, violations } = await watchedDatabase();
  const token = await one.renew();
  one.call()(new Error('once'));
  one.call()(new Error('twice'));
  await one.store.blocked.fail([{ ...failed, token, attempts: 2, dead: true }]);
  expect(violations).toEqual([]);
  const early = await watchedDatabase();
  const earlyToken = await early.one.renew();
  early.one.call()(new Error('once'));
  await early.one.store.blocked.fail([{ ...failed, token: earlyToken, attempts: 1, dead: true }]);
  expect(early.violations).toEqual([expect.stringContaining('with 1 of 2 attempts left')]);
});

test('a recorded attempt counts even if its process ended before the call', async () => {
  const { clock, tables, one, other, violations } = await watchedDatabase();
  const headFor = async ({ store }: typeof one): Promise<BlockedHead> =>
    (await store.blocked.dueHeads([{ handler, slot: 0 }], 1))[0]!;
  const token = await one.renew();
  one.call()(new Error('once'));
  await one.store.blocked.fail([{ ...failed, token, attempts: 1, dead: false }]);
  await one.store.blocked.begin([{ head: await headFor(one), attempt: { id: 'last', counted: true } }]);
  await clock.advance(leaseMs + 1);
  await other.renew();
  const head = await headFor(other);
  await other.store.blocked.fail([
    { ...failed, ...head, event, before: head, error: 'gone', retryAfterMs: undefined, dead: true },
  ]);
  expect([...tables.delivery.blocked.values()]).toMatchObject([{ dead: true, attempts: 2 }]);
  expect(violations).toEqual([]);
});

test('an attempt that was both recorded and made counts once, even after its lease has ended', async () => {
  const { clock, one, other, violations } = await watchedDatabase();
  const headFor = async ({ store }: typeof one): Promise<BlockedHead> =>
    (await store.blocked.dueHeads([{ handler, slot: 0 }], 1))[0]!;
  const token = await one.renew();
  await one.store.blocked.fail([{ ...failed, token, attempts: 0, dead: false }]);
  await one.store.blocked.begin([{ head: await headFor(one), attempt: { id: 'first', counted: true } }]);
  one.call()(new Error('once'));
  await clock.advance(leaseMs + 1);
  await other.renew();
  const head = await headFor(other);
  await other.store.blocked.fail([
    { ...failed, ...head, event, before: head, error: 'gone', retryAfterMs: undefined, dead: true },
  ]);
  expect(violations).toEqual([expect.stringContaining('with 1 of 2 attempts left')]);
});

test('a call by a process unaware of its new lease counts under the previous lease', async () => {
  const { tables, one, violations } = await watchedDatabase();
  await one.renew();
  const replica = tables.delivery.snapshot();
  await one.renew();
  tables.delivery.failOver(replica);
  await one.store.leases.renew('p1', [handler], leaseMs);
  one.call()(new Error('once'));
  await one.renew();
  for (const text of ['again', 'and again']) one.call()(new Error(text));
  expect(violations).toEqual([]);
  one.call();
  expect(violations).toEqual([
    expect.stringContaining('is called again with event-1 after 2 failed attempts'),
  ]);
});

test('an event that is tried again after all its attempts is a violation unless it was replayed', async () => {
  const { one, violations } = await watchedDatabase();
  const token = await one.renew();
  one.call()(new Error('once'));
  one.call()(new Error('twice'));
  await one.store.blocked.fail([{ ...failed, token, attempts: 2, dead: true }]);
  await one.store.deadLetters.replay({}, { limit: 10 });
  await one.store.blocked.fail([]);
  one.call()(new Error('once more'));
  one.call()(new Error('and again'));
  expect(violations).toEqual([]);
  one.call();
  expect(violations).toEqual([
    expect.stringContaining('is called again with event-1 after 2 failed attempts'),
  ]);
});

test('a dead letter that returns without a replay is a violation', async () => {
  const { tables, one, violations } = await watchedDatabase();
  const token = await one.renew();
  one.call()(new Error('once'));
  one.call()(new Error('twice'));
  await one.store.blocked.fail([{ ...failed, token, attempts: 2, dead: true }]);
  for (const row of tables.delivery.blocked.values()) row.dead = false;
  await one.store.blocked.fail([]);
  expect(violations).toEqual([expect.stringContaining('although it is a dead letter that nobody replayed')]);
});

test.each([
  ['under its name keeps its identity', 'one', { name: handler, aliases: [] }, []],
  [
    'by a version with another name is a new handler',
    'other',
    { name: 'another', aliases: [handler] },
    [['notify event-1', new Set([handler, 'another'])]],
  ],
] as const)('a handler that is lost and registered again %s', async (_how, by, registration, ids) => {
  const { tables, history, violations, ...processes } = await watchedDatabase();
  tables.delivery.names.clear();
  tables.delivery.handlers.clear();
  await processes[by].store.cursors.register({ ...registration, startFrom: 'beginning' });
  tables.delivery.commit({ ...event, id: 'event-2' });
  await processes[by].store.cursors.register({ ...registration, startFrom: 'beginning' });
  expect([...history.idsOfLost]).toEqual(ids);
  expect(violations).toEqual([]);
});

test('a lost handler that is registered again under a foreign name is a violation', async () => {
  const { tables, one, violations } = await watchedDatabase();
  tables.delivery.names.clear();
  tables.delivery.handlers.clear();
  await one.store.cursors.register({ name: 'another', aliases: [handler], startFrom: 'beginning' });
  expect(violations).toEqual([
    expect.stringContaining('p1 registers a handler as another, which is not the name of any handler it has'),
  ]);
});

test('a handler regains the id that it had in an older state of the database', async () => {
  const { tables, other, violations } = await watchedDatabase();
  const replica = tables.delivery.snapshot();
  tables.delivery.names.clear();
  tables.delivery.handlers.clear();
  const registration = { name: 'another', aliases: [handler], startFrom: 'beginning' } as const;
  await other.store.cursors.register(registration);
  tables.delivery.failOver(replica);
  await other.store.cursors.register(registration);
  expect(violations).toEqual([]);
});

test('a handler version that waits when its batches fail uses up no attempts', async () => {
  const { one, violations } = await watchedDatabase();
  await one.renew();
  for (let count = 0; count < 5; count++) one.call({ whenBatchFails: 'wait' })(new Error('again'));
  one.call();
  expect(violations).toEqual([]);
});

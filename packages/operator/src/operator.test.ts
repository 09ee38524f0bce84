import type { KeyRecord } from '@framework/core/adapter';
import { beforeEach, describe, expect, test } from 'vitest';

import { MemoryDatabases } from '../test/fixtures/memory-databases.js';
import { Operator } from './operator.js';

const signed = { by: 'olivia', reason: 'the mail server is back' };

let all: MemoryDatabases;
let killed: readonly string[];

beforeEach(async () => {
  all = new MemoryDatabases({ relays: [{ name: 'publish' }] });
  const { first, second } = all;
  for (const database of [first, second]) await database.register('notify');
  const [ofA = ''] = await first.write('a', [1, 2, 3]);
  killed = [ofA, ...(await first.write('other', [1]))];
  for (const id of killed) {
    await first.kill('notify', [id], 'mailbox full\n    at send');
    await all.clock.advance(1);
  }
  await second.kill('notify', await second.write('b', [1]), 'mailbox full\n    at another line');
  await second.kill('notify', await second.write('c', [1]), 'no such user');
});

describe('an operator of two databases', () => {
  test('shows each consumer with its lag, its dead letters and its processes per database', async () => {
    await all.second.register('publish');
    await all.first.hold('worker', 'notify');
    // Behind the dead letters in the second database, which its cursors have passed, an event waits that they have passed as well.
    await all.second.write('b', [2]);
    all.second.pass('notify');
    await all.second.write('b', [3]);
    const { items, failures } = await all.operator.consumers();
    expect(failures).toEqual([]);
    expect(items).toMatchObject([
      {
        handler: 'notify',
        names: ['notify'],
        isRelay: false,
        databases: [
          {
            shards: ['0/0'],
            paused: false,
            pendingCount: 4,
            blockedCount: 0,
            deadCount: 2,
            deadIsLowerBound: false,
            processes: [{ processId: 'worker', slotCount: 16, untilDate: expect.any(Date) as Date }],
            freeSlotCount: 0,
          },
          {
            shards: ['1/0'],
            pendingCount: 1,
            blockedCount: 3,
            blockedIsLowerBound: false,
            deadCount: 2,
            processes: [],
            freeSlotCount: 16,
          },
        ],
      },
      { handler: 'publish', isRelay: true, databases: [{ shards: ['1/0'], pendingCount: 2 }] },
    ]);
  });

  test('groups dead letters by handler and first line, page by page', async () => {
    const { operator } = all;
    const whole = await operator.deadLetters();
    expect(whole).toMatchObject({
      items: [
        { shards: ['0/0'], errorLine: 'mailbox full', count: 2, exampleEventId: killed[0] },
        { shards: ['1/0'], errorLine: 'mailbox full', count: 1 },
        { shards: ['1/0'], errorLine: 'no such user', count: 1 },
      ],
      next: undefined,
    });
    const start = await operator.deadLetters({}, { limit: 1 });
    const rest = await operator.deadLetters({}, { limit: 1, after: start.next });
    expect([...start.items, ...rest.items]).toEqual(whole.items);
    expect(rest.next).toBeUndefined();
    await expect(operator.deadLetters({ handler: 'nobody' })).rejects.toMatchObject({
      code: 'unknown-handler',
    });
  });

  test('finds blocked events by the first line of their error', async () => {
    const { items } = await all.operator.blocked({ errorLine: 'mailbox full' });
    expect(items.map(({ event }) => event.modelId)).toEqual(['a', 'other', 'b']);
  });

  test('shows the history of a model with what became of each event', async () => {
    await all.first.register('late');
    await all.first.write('a', [4]);
    const { items, next } = await all.operator.model('a', { limit: 2 });
    expect(items).toMatchObject([
      {
        shards: ['0/0'],
        event: { modelVersion: 1, actionName: 'ChangeThing', payload: { version: 1 } },
        deliveries: [
          { handler: 'late', state: 'passed' },
          { handler: 'notify', state: 'dead-letter' },
        ],
      },
      { event: { modelVersion: 2 }, deliveries: [{}, { handler: 'notify', state: 'blocked' }] },
    ]);
    const rest = await all.operator.model('a', { after: next });
    expect(rest.items).toMatchObject([
      { event: { modelVersion: 3 }, deliveries: [{ state: 'passed' }, { state: 'blocked' }] },
      {
        event: { modelVersion: 4 },
        deliveries: [{ handler: 'late', state: 'pending' }, { state: 'blocked' }],
      },
    ]);
  });

  test('shows an event with why each handler has not handled it', async () => {
    expect((await all.operator.event(killed[0] ?? '')).items).toMatchObject([
      { shards: ['0/0'], standings: [{ handler: 'notify', kind: 'dead-letter', attempts: 3 }] },
    ]);
    expect((await all.operator.event('nowhere')).items).toEqual([]);
  });

  test('finds an action by its id, and by the idempotency key of its request', async () => {
    const { operator, first } = all;
    const key: KeyRecord = {
      namespace: 'test',
      principal: 'alice',
      key: 'k',
      fingerprint: 'f',
      result: undefined,
      lifetimeMs: 60_000,
    };
    await first.writeAtOnce('a', [4], { key });
    const { actionId = '' } = first.log.at(-1) ?? {};
    expect((await operator.action(actionId)).items).toMatchObject([
      { shards: ['0/0'], actionName: 'ChangeThing', events: [{ event: { modelVersion: 4 } }] },
    ]);
    expect((await operator.idempotencyKey('k')).items).toMatchObject([
      { shards: ['0/0'], principal: 'alice', action: { actionId, events: [{ event: { modelId: 'a' } }] } },
    ]);
    expect((await operator.idempotencyKey('k', 'bob')).items).toEqual([]);
  });

  test('shows each database with its shards', async () => {
    expect(await all.operator.shards()).toMatchObject({
      items: [
        { shards: ['0/0'], server: 'memory', eventCountEstimate: 4 },
        { shards: ['1/0'], eventCountEstimate: 2 },
      ],
      failures: [],
    });
  });

  test('answers for the one that is up, and shows no message of the driver', async () => {
    const { operator } = all;
    all.takeDown(1);
    const answers = await Promise.all([
      operator.consumers(),
      operator.blocked(),
      operator.deadLetters(),
      operator.deadLetters({ handler: 'notify' }),
      operator.model('a'),
      operator.events(),
      operator.event(killed[0] ?? ''),
      operator.action('01920000-0000-7000-8000-000000000000'),
      operator.idempotencyKey('k'),
      operator.why('a'),
      operator.audit(),
      operator.shards(),
      operator.replay({ handler: 'notify' }, signed),
    ]);
    for (const { failures } of answers)
      expect(failures).toEqual([{ shards: ['1/0'], code: 'shard-unavailable' }]);
    expect(answers[0].items).toMatchObject([{ databases: [{ shards: ['0/0'] }] }]);
    expect(answers[12]).toMatchObject({ count: 2, items: [{ shards: ['0/0'] }] });
    expect(JSON.stringify(answers)).not.toMatch(/canary|ECONN/);
  });

  test('finds what only one knows about a handler once that one answers again', async () => {
    const { operator, second } = all;
    await second.register('rare');
    const [id = ''] = await second.write('d', [1]);
    await second.kill('rare', [id], 'no');
    const failures = [{ shards: ['1/0'], code: 'shard-unavailable' }];
    all.takeDown(1);
    expect(await operator.deadLetters({ handler: 'rare' })).toMatchObject({ items: [], failures });
    expect(await operator.blocked({ handler: 'rare' })).toMatchObject({ items: [], failures });
    all.recover();
    expect(await operator.deadLetters({ handler: 'rare' })).toMatchObject({ items: [{}], failures: [] });
    expect(await operator.blocked({ handler: 'rare' })).toMatchObject({ items: [{}], failures: [] });
  });

  test('does not call a handler unknown while a database does not answer', async () => {
    all.takeDown(1);
    const { items, failures } = await all.operator.deadLetters({ handler: 'nobody' });
    expect([items, failures.length]).toEqual([[], 1]);
  });
});

test('an operator whose adapter keeps nothing for operators says so', async () => {
  const deliveries = all
    .open()
    .deliveries()
    .map((delivery) => ({ ...delivery, store: { ...delivery.store, operator: undefined } }));
  const operator = new Operator({ databases: { deliveries: () => deliveries } });
  const refused = { code: 'operator-request' };
  await expect(operator.shards()).rejects.toMatchObject(refused);
  await expect(operator.audit()).rejects.toMatchObject(refused);
  await expect(operator.action('a')).rejects.toMatchObject(refused);
});

import { beforeAll, describe, expect, test } from 'vitest';

import { type OperatedDatabases, operatedDatabases } from './fixtures/operated-databases.js';

let all: OperatedDatabases;
beforeAll(async () => {
  all = await operatedDatabases();
});

/** The databases, with nothing in them. */
async function emptied(): Promise<OperatedDatabases> {
  all.proxy.judge = () => 'forward';
  await Promise.all([all.first.reset(), all.second.reset()]);
  return all;
}

const signed = { by: 'olivia', reason: 'the mail server is back' };

describe('an operator of two databases', () => {
  let killed: readonly string[];

  beforeAll(async () => {
    const { first, second } = await emptied();
    for (const database of [first, second]) await database.register('notify');
    killed = await first.write('a', [1, 2, 3]);
    await first.kill('notify', killed.slice(0, 2), 'mailbox full\n    at send');
    await second.kill('notify', await second.write('b', [1]), 'mailbox full\n    at another line');
    await second.kill('notify', await second.write('c', [1]), 'no such user');
  });

  test('shows each consumer with its lag, its dead letters and its processes per database', async () => {
    const { items, failures } = await all.operator.consumers();
    expect(failures).toEqual([]);
    expect(items).toMatchObject([
      {
        handler: 'notify',
        names: ['notify'],
        databases: [
          {
            shards: ['0/0'],
            paused: false,
            pendingCount: 3,
            deadCount: 2,
            deadIsLowerBound: false,
            processes: [],
          },
          { shards: ['1/0'], pendingCount: 2, deadCount: 2 },
        ],
      },
    ]);
  });

  test('groups dead letters by handler and first line, page by page', async () => {
    const { operator } = all;
    const whole = await operator.deadLetters();
    expect(whole).toMatchObject({
      items: [
        {
          shards: ['0/0'],
          errorLine: 'mailbox full',
          count: 2,
          isLowerBound: false,
          exampleEventId: killed[0],
        },
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
    expect(items.map(({ event }) => event.modelId)).toEqual(['a', 'a', 'b']);
  });

  test('shows the history of a model with what became of each event', async () => {
    const { items, next } = await all.operator.model('a', { limit: 2 });
    expect(items).toMatchObject([
      {
        shards: ['0/0'],
        event: { modelVersion: 1, actionName: 'ChangeThing', payload: { version: 1 } },
        deliveries: [{ handler: 'notify', state: 'dead-letter' }],
      },
      { event: { modelVersion: 2 } },
    ]);
    const rest = await all.operator.model('a', { after: next });
    expect(rest.items).toMatchObject([
      { event: { modelVersion: 3 }, deliveries: [{ handler: 'notify', state: 'pending' }] },
    ]);
  });

  test('explains what stands in the way of an event and of a model', async () => {
    const { operator } = all;
    const event = await operator.why(killed[0] ?? '');
    expect(event.kind).toBe('event');
    expect(event.sentences.join(' ')).toContain(
      'notify: it is a dead letter after 3 attempts (mailbox full)',
    );
    const model = await operator.why('a');
    expect(model.kind).toBe('model');
    expect(model.sentences).toEqual([
      expect.stringContaining('notify: has as dead letters 2 of the 3 events'),
      expect.stringContaining('notify: has not reached 1 of the 3 events'),
    ]);
    expect((await operator.why('nowhere')).kind).toBe('unknown');
    expect((await operator.event(killed[0] ?? '')).items).toMatchObject([
      { shards: ['0/0'], standings: [{ kind: 'dead-letter' }] },
    ]);
  });

  test('finds an action by its id, and by the idempotency key of its request', async () => {
    const { operator, first } = all;
    const [row] = await first.query<{ action_id: string }>(
      `select action_id from eventlog.events where model_version = 3`,
    );
    const actionId = row?.action_id ?? '';
    await first.query(
      `insert into eventlog.idempotency_keys (key, principal, namespace, action_id, action_name, fingerprint, expires_date)
       values ('k', 'alice', 'test', $1, 'ChangeThing', '', now() + interval '1 day')`,
      [actionId],
    );
    expect((await operator.action(actionId)).items).toMatchObject([
      { actionName: 'ChangeThing', events: [{ event: { modelVersion: 3 } }] },
    ]);
    expect((await operator.idempotencyKey('k')).items).toMatchObject([
      { principal: 'alice', action: { actionId, events: [{ event: { modelId: 'a' } }] } },
    ]);
    expect((await operator.idempotencyKey('k', 'bob')).items).toEqual([]);
    expect((await operator.why(actionId)).kind).toBe('action');
  });
});

describe('a change', () => {
  test('is counted by a dry run, and recorded before and after in each database that it concerns', async () => {
    const { operator, first, second } = await emptied();
    await first.register('notify');
    await first.kill('notify', await first.write('a', [1, 2]), 'no');
    const filter = { handler: 'notify', errorLine: 'no' };
    expect(await operator.replay(filter, { ...signed, dryRun: true })).toMatchObject({
      changeId: undefined,
      count: 2,
      items: [{ shards: ['0/0'], count: 2, mayBeMore: false }],
    });
    expect(await first.audit()).toEqual([]);
    const answer = await operator.replay(filter, signed);
    expect(answer).toMatchObject({ count: 2, failures: [] });
    expect((await operator.deadLetters()).items).toEqual([]);
    expect(await first.audit()).toEqual([
      { phase: 'begun', outcome: null, count: null },
      { phase: 'ended', outcome: 'done', count: '2' },
    ]);
    expect(await second.audit()).toEqual([]);
    expect((await operator.audit()).items).toMatchObject([
      {
        changeId: answer.changeId,
        shards: ['0/0'],
        operation: 'replay',
        actor: 'olivia',
        reason: signed.reason,
        target: { filter },
        ended: { outcome: 'done', count: 2 },
      },
    ]);
  });

  test('without a name, a reason or a filter is refused and changes nothing', async () => {
    const { operator, first } = await emptied();
    await first.register('notify');
    await first.kill('notify', await first.write('a', [1]), 'no');
    const refused = { code: 'operator-request' };
    await expect(operator.replay({ handler: 'notify' }, { by: '', reason: 'x' })).rejects.toMatchObject(
      refused,
    );
    await expect(operator.pause('notify', { by: 'x', reason: ' ' })).rejects.toMatchObject(refused);
    await expect(operator.skip({ dead: true }, signed)).rejects.toMatchObject(refused);
    await expect(operator.pause('nobody', signed)).rejects.toMatchObject({ code: 'unknown-handler' });
    expect(await first.audit()).toEqual([]);
    expect((await operator.deadLetters()).items).toHaveLength(1);
  });

  test('stops at its limit, and says that there may be more', async () => {
    const { operator, first } = await emptied();
    await first.register('notify');
    await first.kill('notify', await first.write('a', [1, 2, 3]), 'no');
    expect(await operator.skip({ handler: 'notify' }, { ...signed, limit: 2 })).toMatchObject({
      count: 2,
      mayBeMore: true,
    });
    const left = await operator.blocked();
    expect(left.items.map(({ event }) => event.modelVersion)).toEqual([3]);
  });

  test('pauses, resumes and retires a handler, each of them recorded', async () => {
    const { operator, first } = await emptied();
    await first.register('notify');
    const paused = async (): Promise<unknown> => (await operator.consumers()).items[0]?.databases[0]?.paused;
    await operator.pause('notify', signed);
    expect(await paused()).toBe(true);
    await operator.resume('notify', signed);
    expect(await paused()).toBe(false);
    await operator.retire('notify', signed);
    expect((await operator.consumers()).items).toEqual([]);
    const { items } = await operator.audit();
    expect(items.map(({ operation }) => operation)).toEqual(['retire', 'resume', 'pause']);
  });

  test('that fails is recorded with the code of its error', async () => {
    const { operator, first } = await emptied();
    await first.register('notify');
    await first.query(
      `insert into eventlog.processes (process_id, until_date, renewed_date, handlers)
       values ('p', now() + interval '1 hour', now(), '{notify}')`,
    );
    const answer = await operator.retire('notify', signed);
    expect(answer).toMatchObject({
      count: 0,
      items: [],
      failures: [{ shards: ['0/0'], code: 'handler-in-use' }],
    });
    expect(await first.audit()).toMatchObject([{ phase: 'begun' }, { phase: 'ended', outcome: 'failed' }]);
  });

  test('that is cut short stays without an outcome', async () => {
    const { operator, second, proxy } = await emptied();
    await second.register('notify');
    await second.kill('notify', await second.write('a', [1]), 'no');
    let isCut = false;
    proxy.judge = ({ direction, bytes }) => {
      isCut ||= direction === 'to-server' && bytes.includes('for update of p');
      return isCut ? 'cut' : 'forward';
    };
    expect((await operator.replay({ handler: 'notify' }, signed)).failures).toHaveLength(1);
    expect(await second.audit()).toMatchObject([{ phase: 'begun' }]);
    await proxy.refuse();
    proxy.judge = () => 'forward';
    await proxy.accept();
  });
});

describe('with one database down, an operator', () => {
  test('answers for the other one, and names what is missing without addresses', async () => {
    const { operator, first, second, proxy } = await emptied();
    for (const database of [first, second]) {
      await database.register('notify');
      await database.kill('notify', await database.write('a', [1]), 'no');
    }
    await proxy.refuse();
    const answers = await Promise.all([
      operator.consumers(),
      operator.blocked(),
      operator.deadLetters(),
      operator.model('a'),
      operator.events(),
      operator.why('a'),
      operator.audit(),
      operator.replay({ handler: 'notify' }, signed),
    ]);
    for (const { failures } of answers)
      expect(failures).toEqual([{ shards: ['1/0'], code: 'shard-unavailable' }]);
    expect(answers[0].items).toMatchObject([{ databases: [{ shards: ['0/0'] }] }]);
    expect(answers[7]).toMatchObject({ count: 1, items: [{ shards: ['0/0'] }] });
    expect(JSON.stringify(answers)).not.toMatch(/127\.0\.0\.1|ECONN/);
  });
});

import { describe, expect, test } from 'vitest';

import { MemoryDatabases } from '../test/fixtures/memory-databases.js';
import type { ChangeAnswer, ChangeOptions } from './changes.js';
import type { Operator } from './operator.js';

const signed = { by: 'olivia', reason: 'the mail server is back' };
/** Two texts that differ only at the end, as long as a reason may be. */
const [longReason, otherReason] = ['x', 'y'].map((end) => `${'ü'.repeat(999)}${end}`) as [string, string];

/** Two databases that know `notify`, with so many dead letters in each, of a model each: `model-0-1` and so on in the first one. */
async function withDeadLetters(counts: readonly [first: number, second: number]): Promise<MemoryDatabases> {
  const all = new MemoryDatabases();
  for (const [index, database] of [all.first, all.second].entries()) {
    await database.register('notify');
    const modelIds = Array.from({ length: counts[index] ?? 0 }, (_unused, n) => `model-${index}-${n + 1}`);
    await database.kill('notify', await database.writeModels(modelIds), 'no');
  }
  return all;
}

const begunAndDone = ['replay', 'done'] as const;

describe('a change', () => {
  test('is counted by a dry run, and recorded before and after in each database that it concerns', async () => {
    const all = new MemoryDatabases();
    const { operator, first, second } = all;
    await first.register('notify');
    await first.kill('notify', await first.writeModels(['a', 'b']), 'no');
    const filter = { handler: 'notify', errorLine: 'no' };
    expect(await operator.replay(filter, { ...signed, dryRun: true })).toEqual({
      changeId: undefined,
      count: 2,
      mayBeMore: false,
      items: [{ shards: ['0/0'], count: 2, mayBeMore: false }],
      failures: [],
    });
    expect(first.audit).toEqual([]);
    const answer = await operator.replay(filter, signed);
    expect(answer).toMatchObject({ count: 2, failures: [] });
    expect((await operator.deadLetters()).items).toEqual([]);
    expect([first.audit, second.audit]).toEqual([[begunAndDone], []]);
    expect((await operator.audit()).items).toMatchObject([
      {
        changeId: answer.changeId,
        shards: ['0/0'],
        operation: 'replay',
        actor: 'olivia',
        reason: signed.reason,
        target: { filter, limit: 10_000 },
        ended: { outcome: 'done', count: 2 },
      },
    ]);
  });

  test('has the same id in every database that it concerns, and another one each time', async () => {
    const { operator } = await withDeadLetters([1, 1]);
    const ids = [
      (await operator.pause('notify', signed)).changeId,
      (await operator.pause('notify', signed)).changeId,
    ];
    const { items } = await operator.audit();
    expect(items.filter(({ changeId }) => changeId === ids[0])).toHaveLength(2);
    expect(new Set(items.map(({ changeId }) => changeId))).toEqual(new Set(ids));
  });

  test.each([
    ['a handler', { handler: 'notify' }, 2],
    ['a model', { modelId: 'model-0-1' }, 1],
    ['a type', { eventType: 'ThingChangedEvent' }, 2],
    ['an error', { errorLine: 'no' }, 2],
  ])('that replays %s twice in a row finds nothing the second time', async (_what, filter, count) => {
    const { operator } = await withDeadLetters([2, 0]);
    expect(await operator.replay(filter, signed)).toMatchObject({ count, failures: [] });
    expect(await operator.replay(filter, signed)).toMatchObject({ count: 0, mayBeMore: false, failures: [] });
    // Replayed events wait for their handler, and are not removed.
    expect((await operator.blocked({ dead: false })).items).toHaveLength(count);
    expect((await operator.blocked()).items).toHaveLength(2);
  });

  test('that skips twice in a row passes over each event once', async () => {
    const { operator, first } = await withDeadLetters([2, 0]);
    await first.block('notify', await first.write('waiting', [1]));
    const filter = { handler: 'notify' };
    expect(await operator.skip(filter, signed)).toMatchObject({ count: 2 });
    expect(await operator.skip(filter, signed)).toMatchObject({ count: 0, failures: [] });
    expect(await operator.skip({ ...filter, dead: false }, signed)).toMatchObject({ count: 1 });
    expect(await operator.skip({ ...filter, dead: false }, signed)).toMatchObject({ count: 0 });
    expect((await operator.blocked()).items).toEqual([]);
  });

  test('that pauses or resumes a handler twice in a row leaves it so, and each time is recorded', async () => {
    const { operator, first } = await withDeadLetters([0, 0]);
    const paused = async (): Promise<unknown> =>
      (await operator.consumers()).items.map(({ databases }) => databases.map((each) => each.paused));
    for (const [operation, isPaused] of [
      ['pause', true],
      ['pause', true],
      ['resume', false],
      ['resume', false],
    ] as const) {
      expect(await operator[operation]('notify', signed)).toMatchObject({ count: 0, failures: [] });
      expect(await paused()).toEqual([[isPaused, isPaused]]);
    }
    expect(first.audit).toEqual(
      ['pause', 'pause', 'resume', 'resume'].map((operation) => [operation, 'done']),
    );
  });

  test('that retires a handler twice in a row finds no handler the second time', async () => {
    const { operator, first } = await withDeadLetters([0, 0]);
    expect(await operator.retire('notify', { ...signed, dryRun: true })).toMatchObject({ count: 0 });
    expect(await operator.retire('notify', signed)).toMatchObject({ items: [{}, {}], failures: [] });
    expect((await operator.consumers()).items).toEqual([]);
    await expect(operator.retire('notify', signed)).rejects.toMatchObject({ code: 'unknown-handler' });
    await expect(operator.pause('notify', signed)).rejects.toMatchObject({ code: 'unknown-handler' });
    expect(first.audit).toEqual([['retire', 'done']]);
  });

  test('that retires a handler with blocked models needs to discard them, and counts the models', async () => {
    const { operator, first } = await withDeadLetters([2, 0]);
    // An event that waits behind another one is discarded with its model, and not counted.
    await first.write('model-0-1', [2]);
    const refused = await operator.retire('notify', signed);
    expect(refused).toMatchObject({ failures: [{ shards: ['0/0'], code: 'handler-in-use' }] });
    const discarding = { ...signed, discardBlocked: true };
    expect(await operator.retire('notify', { ...discarding, dryRun: true })).toMatchObject({ count: 2 });
    expect(await operator.retire('notify', discarding)).toMatchObject({ count: 2, failures: [] });
    expect(first.audit).toEqual([
      ['retire', 'failed'],
      ['retire', 'done'],
    ]);
  });

  test.each([
    [1, 1, true],
    [2, 2, true],
    [3, 3, true],
    [4, 3, false],
  ])(
    'of 3 events with the limit %i changes %i, and says whether there may be more: %s',
    async (limit, count, mayBeMore) => {
      const { operator } = await withDeadLetters([3, 0]);
      const options = { ...signed, limit };
      const expected = { count, mayBeMore };
      expect(await operator.skip({ handler: 'notify' }, { ...options, dryRun: true })).toMatchObject(
        expected,
      );
      expect(await operator.skip({ handler: 'notify' }, options)).toMatchObject(expected);
      const left = await operator.blocked();
      expect(left.items.map(({ event }) => event.modelId)).toEqual(
        ['model-0-1', 'model-0-2', 'model-0-3'].slice(count),
      );
    },
  );

  test.each([undefined, 1])(
    'of a model changes its first event, and none of those behind it, with the limit %s',
    async (limit) => {
      const { operator, first } = await withDeadLetters([0, 0]);
      const [dead = ''] = await first.write('a', [1, 2, 3]);
      await first.kill('notify', [dead], 'no');
      const options = { ...signed, limit };
      const filter = { modelId: 'a' };
      expect(await operator.replay(filter, { ...options, dryRun: true })).toMatchObject({ count: 1 });
      expect(await operator.replay(filter, options)).toMatchObject({ count: 1 });
      const untried = { attempts: 0, dead: false, nextAttemptDate: expect.any(Date) as Date };
      expect((await operator.blocked(filter)).items).toMatchObject([
        { ...untried, event: { id: dead }, error: 'no' },
      ]);
      const skipped = { ...filter, dead: false };
      expect(await operator.skip(skipped, { ...options, dryRun: true })).toMatchObject({ count: 1 });
      expect(await operator.skip(skipped, options)).toMatchObject({ count: 1 });
      // The event behind the skipped one is untried: it is not listed, and a repeated skip does not reach it.
      for (const again of [filter, skipped])
        expect(await operator.skip(again, options)).toMatchObject({ count: 0, mayBeMore: false });
      expect((await operator.blocked(filter)).items).toEqual([]);
    },
  );

  test.each([0, -1, 1.5, 100_001, Number.NaN])('with the limit %d is refused', async (limit) => {
    const { operator, first } = await withDeadLetters([1, 0]);
    const refused = operator.replay({ handler: 'notify' }, { ...signed, limit });
    await expect(refused).rejects.toMatchObject({ code: 'operator-request' });
    expect(first.audit).toEqual([]);
  });

  test('with the greatest limit is made', async () => {
    const { operator } = await withDeadLetters([1, 0]);
    const answer = await operator.replay({ handler: 'notify' }, { ...signed, limit: 100_000 });
    expect(answer).toMatchObject({ count: 1, mayBeMore: false });
  });

  test('without a name, a reason or a filter is refused and changes nothing', async () => {
    const { operator, first } = await withDeadLetters([1, 0]);
    const before = first.state;
    const refused = { code: 'operator-request' };
    const filter = { handler: 'notify' };
    for (const [by, reason] of [
      ['', 'x'],
      [' ', 'x'],
      ['x', ' '],
      ['x'.repeat(256), 'x'],
      ['x', 'x'.repeat(1_001)],
      ['\u0000', 'x'],
      ['x', '\ud800'],
    ] as const)
      await expect(operator.replay(filter, { by, reason })).rejects.toMatchObject(refused);
    await expect(operator.skip({ dead: true }, signed)).rejects.toMatchObject(refused);
    await expect(operator.skip({}, signed)).rejects.toMatchObject(refused);
    await expect(operator.replay({ ...filter, dead: false }, signed)).rejects.toMatchObject(refused);
    await expect(operator.pause('nobody', signed)).rejects.toMatchObject({ code: 'unknown-handler' });
    await expect(operator.skip({ handler: 'nobody' }, signed)).rejects.toMatchObject({
      code: 'unknown-handler',
    });
    expect(first.state).toEqual(before);
  });

  test.each([
    ['modelId', 'a\u0000b'],
    ['eventType', '\ud800'],
    ['errorLine', '\u0000'],
    ['eventId', '\udfff'],
    ['handler', '\u0000'],
  ])('with a text in %s that no database can store is refused', async (field, text) => {
    const { operator, first } = await withDeadLetters([1, 0]);
    await expect(operator.replay({ [field]: text }, signed)).rejects.toMatchObject({
      code: 'operator-request',
    });
    expect(first.audit).toEqual([]);
  });

  test('keeps the whole of a name and a reason that are as long as they may be', async () => {
    const { operator } = await withDeadLetters([0, 0]);
    const by = `${'ü'.repeat(254)}x`;
    for (const reason of [longReason, otherReason]) await operator.pause('notify', { by, reason });
    const { items } = await operator.audit();
    const ofFirst = items.filter(({ shards }) => shards[0] === '0/0');
    expect(new Set(ofFirst.map(({ reason }) => reason))).toEqual(new Set([longReason, otherReason]));
    expect(new Set(items.map(({ actor }) => actor))).toEqual(new Set([by]));
  });

  test('of events whose long texts differ only at the end changes only those that were meant', async () => {
    const all = new MemoryDatabases();
    const { operator, first } = all;
    await first.register('notify');
    const [id, otherId] = ['x', 'y'].map((end) => `${'ü'.repeat(199)}${end}`) as [string, string];
    for (const text of [id, otherId])
      await first.kill('notify', await first.write(text, [1], { type: text }), text);
    for (const filter of [{ modelId: id }, { eventType: id }, { errorLine: id }]) {
      expect(await operator.replay(filter, { ...signed, dryRun: true })).toMatchObject({ count: 1 });
      const { items } = await operator.blocked(filter);
      expect(items.map(({ event }) => event.modelId)).toEqual([id]);
    }
    await operator.skip({ errorLine: id }, signed);
    expect((await operator.blocked()).items.map(({ event }) => event.modelId)).toEqual([otherId]);
  });
});

describe('a change that fails in a part', () => {
  test('is recorded with the code of its error', async () => {
    const { operator, first } = await withDeadLetters([0, 0]);
    await first.hold('p', 'notify');
    const answer = await operator.retire('notify', signed);
    expect(answer).toMatchObject({
      count: 0,
      items: [{ shards: ['1/0'] }],
      failures: [{ shards: ['0/0'], code: 'handler-in-use', detail: expect.any(String) as string }],
    });
    const [{ ended } = {}] = (await operator.audit()).items;
    expect(ended).toMatchObject({ outcome: 'failed', count: 0, errorCode: 'handler-in-use' });
  });

  test.each(['replay', 'skip'] as const)('makes the rest when it is repeated: %s', async (operation) => {
    const all = await withDeadLetters([1, 2]);
    const { operator } = all;
    all.takeDown(1);
    const filter = { handler: 'notify' };
    const failures = [{ shards: ['1/0'], code: 'shard-unavailable' }];
    expect(await operator[operation](filter, signed)).toMatchObject({ count: 1, failures });
    expect(await operator[operation](filter, signed)).toMatchObject({ count: 0, failures });
    all.recover();
    expect(await operator[operation](filter, signed)).toMatchObject({ count: 2, failures: [] });
    expect(await operator[operation](filter, signed)).toMatchObject({ count: 0, failures: [] });
  });

  test.each(['pause', 'resume', 'retire'] as const)(
    'is made where its database is up: %s',
    async (operation) => {
      const all = await withDeadLetters([0, 0]);
      all.takeDown(1);
      expect(await all.operator[operation]('notify', signed)).toMatchObject({
        items: [{ shards: ['0/0'] }],
        failures: [{ shards: ['1/0'], code: 'shard-unavailable' }],
      });
      all.recover();
      expect([all.first.audit, all.second.audit]).toEqual([[[operation, 'done']], []]);
    },
  );

  test.each<[string, (operator: Operator, options: ChangeOptions) => Promise<ChangeAnswer>]>([
    ['replay', (operator, options) => operator.replay({ handler: 'notify' }, options)],
    ['skip', (operator, options) => operator.skip({ handler: 'notify' }, options)],
    ['pause', (operator, options) => operator.pause('notify', options)],
    ['resume', (operator, options) => operator.resume('notify', options)],
    ['retire', (operator, options) => operator.retire('notify', options)],
  ])(
    'names the failed database if no other one has the handler, and records nothing: %s',
    async (operation, change) => {
      const all = new MemoryDatabases();
      await all.second.register('notify');
      all.takeDown(1);
      const failures = [{ shards: ['1/0'], code: 'shard-unavailable' }];
      for (const dryRun of [true, false])
        expect(await change(all.operator, { ...signed, dryRun })).toMatchObject({
          count: 0,
          items: [],
          failures,
        });
      all.recover();
      expect([all.first.audit, all.second.audit]).toEqual([[], []]);
      expect(await change(all.operator, signed)).toMatchObject({
        items: [{ shards: ['1/0'] }],
        failures: [],
      });
      expect([all.first.audit, all.second.audit]).toEqual([[], [[operation, 'done']]]);
    },
  );

  test('reports and records what it has made before the step that failed', async () => {
    const all = await withDeadLetters([0, 1_500]);
    const { operator, second } = all;
    let stepCount = 0;
    all.takeDown(1, ({ operation }) => operation === 'deadLetters.replay' && ++stepCount > 1);
    const failures = [{ shards: ['1/0'], code: 'shard-unavailable' }];
    expect(await operator.replay({ handler: 'notify' }, signed)).toMatchObject({
      count: 1_000,
      items: [
        { shards: ['0/0'], count: 0 },
        { shards: ['1/0'], count: 1_000 },
      ],
      failures,
    });
    all.recover();
    expect(second.audit).toEqual([['replay', 'failed']]);
    const { items } = await operator.audit();
    expect(items.find(({ shards }) => shards[0] === '1/0')?.ended).toMatchObject({
      count: 1_000,
      errorCode: 'shard-unavailable',
    });
    expect(await operator.replay({ handler: 'notify' }, signed)).toMatchObject({ count: 500, failures: [] });
  });

  test('stays without an outcome if its end cannot be recorded', async () => {
    const all = await withDeadLetters([0, 1]);
    const isAffected = new Set(['deadLetters.replay', 'operator.endChange']);
    all.takeDown(1, ({ operation }) => isAffected.has(operation));
    const { failures } = await all.operator.replay({ handler: 'notify' }, signed);
    expect(failures).toEqual([{ shards: ['1/0'], code: 'shard-unavailable' }]);
    all.recover();
    expect(all.second.audit).toEqual([['replay', undefined]]);
  });

  test('is not made if its beginning cannot be recorded', async () => {
    const all = await withDeadLetters([0, 1]);
    all.takeDown(1, ({ operation }) => operation === 'operator.beginChange');
    expect(await all.operator.skip({ handler: 'notify' }, signed)).toMatchObject({ failures: [{}] });
    all.recover();
    expect((await all.operator.blocked()).items).toHaveLength(1);
  });
});

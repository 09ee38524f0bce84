import {
  type BlockedFilter,
  type DeadLetterGroup,
  type OperatorChange,
  type RecordedChange,
  positionAfter,
} from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { at, noLimits } from '../suite-context.js';
import { type DeliveryContext, idsOf, step, uuid, withCode } from './delivery-context.js';

const aSecond = 1_000;
const groupsMax = 100;
const groupCountMax = 10_000;
/** How many characters of an error's first line count. */
const errorLineMax = 200;

/** Two texts of the maximum length of a reason that differ only in their last character, which needs four bytes. */
const [long, otherLong] = ['𝒳', '𝒴'].map((end) => `${'ü'.repeat(998)}${end}`) as [string, string];

/** Registers tests of what operators find among blocked models, and of the record of what they change. */
export function describeOperatorChanges(context: DeliveryContext): void {
  const listed = async (): Promise<readonly RecordedChange[]> =>
    (await context.operator.changes({ limit: 100 })).items;
  const groups = async (handler?: string): Promise<readonly DeadLetterGroup[]> =>
    (await context.operator.groupDeadLetters(handler, { limit: 100 })).items;
  /** Makes dead letters of `notify` with these errors, one each. */
  const fail = async (...errors: readonly (string | undefined)[]): Promise<readonly string[]> => {
    await context.holdAll();
    const written = errors.map((_error, index) => ({ modelId: `m-${index}`, modelVersion: 1 }));
    const ids = await context.writeAtOnce(...written);
    const events = await context.logged();
    await context.fail(...events.map((event, index) => ({ event, dead: true, error: errors[index] })));
    return ids;
  };

  test('The heads of blocked models are counted by every field of a filter, up to a maximum', async () => {
    await context.holdWith('a', 1, 2);
    await context.write('b', 1);
    await context.write('c', 1);
    const events = await context.logged();
    const [first, ofB, ofC] = [at(events, 0), at(events, 2), at(events, 3)];
    await context.fail({ event: first, dead: true, error: 'no\nluck' }, { event: ofB }, { event: ofC });
    await context.fail({ event: first, handler: 'elsewhere', dead: true, error: 'no' });
    const count = (filter: BlockedFilter, countMax = 10): Promise<number> =>
      context.store.deadLetters.countBlocked(filter, countMax);
    for (const [countMax, counted] of [
      [5, 4],
      [4, 4],
      [3, 3],
      [1, 1],
    ] as const)
      expect(await count({}, countMax)).toBe(counted);
    expect(await count({ handler: 'notify' })).toBe(3);
    expect(await count({ dead: true })).toBe(2);
    expect(await count({ dead: false })).toBe(2);
    expect(await count({ eventId: first.id })).toBe(2);
    expect(await count({ modelId: 'a', eventType: first.type, errorLine: 'no' })).toBe(2);
    expect(await count({ handler: 'notify', eventId: first.id, errorLine: 'no', dead: true })).toBe(1);
    for (const other of [{ handler: 'n' }, { eventId: uuid() }, { eventType: 'n' }, { modelId: 'n' }])
      expect(await count(other)).toBe(0);
    for (const text of ['\u0000', '\ud800'])
      for (const name of ['handler', 'eventId', 'eventType', 'modelId', 'errorLine'])
        expect(await count({ [name]: text })).toBe(0);
    // An untried head is not counted.
    await context.write('b', 2);
    for (const event of [ofB, ofC]) await context.move(event, positionAfter(event));
    expect(await count({ dead: false })).toBe(0);
  });

  test('Dead letters are grouped by handler and first line, with the one that is blocked longest', async () => {
    await context.holdAll();
    for (const model of ['a', 'b', 'c', 'd']) await context.write(model, 1);
    const events = await context.logged();
    const [first, second, third, fourth] = [at(events, 0), at(events, 1), at(events, 2), at(events, 3)];
    const dead = { dead: true, error: 'mailbox full\n at send' };
    await context.fail({ event: second, ...dead });
    const { now: oldestDate } = await context.operator.overview();
    await context.fixture.pass(aSecond);
    await context.fail(
      { event: first, ...dead, error: 'mailbox full' },
      { event: third, ...dead, error: 'a' },
    );
    await context.fail({ event: second, ...dead, handler: 'elsewhere' }, { event: fourth, error: 'waits' });
    const found = await groups();
    expect(found).toMatchObject([
      { handler: 'elsewhere', errorLine: 'mailbox full', count: 1 },
      { handler: 'notify', errorLine: 'a', count: 1, isLowerBound: false },
      { handler: 'notify', errorLine: 'mailbox full', count: 2, exampleEventId: second.id },
    ]);
    expect(at(found, 2).oldestDate).toEqual(oldestDate);
    expect(await groups('elsewhere')).toEqual(found.slice(0, 1));
    for (const unknown of ['nobody', '\u0000']) expect(await groups(unknown)).toEqual([]);
    await context.store.deadLetters.skip({ eventId: second.id, handler: 'notify' }, step);
    expect((await groups('notify'))[1]).toMatchObject({ count: 1, exampleEventId: first.id });
  });

  test('First lines are compared up to their 200th character, however many bytes it has', async () => {
    const line = '𝒳'.repeat(errorLineMax - 1);
    const ids = await fail(`${line}ü`, `${line}üa`, `${line}üb\nat`, `${line}𝒴`, line);
    const found = await groups();
    const counts = new Map(found.map(({ errorLine, count }) => [errorLine, count]));
    expect(counts).toEqual(
      new Map([
        [`${line}ü`, 3],
        [`${line}𝒴`, 1],
        [line, 1],
      ]),
    );
    const rows = await context.rows({ errorLine: `${line}ü` });
    expect(idsOf(rows.map(({ event }) => event)).toSorted()).toEqual(ids.slice(0, 3).toSorted());
    expect(await context.store.deadLetters.countBlocked({ errorLine: `${line}𝒴` }, 10)).toBe(1);
  });

  test('Errors without a first line are one group', async () => {
    await fail(undefined, '', '\nat a line');
    expect(await groups()).toMatchObject([{ errorLine: '', count: 3 }]);
    const { items } = await context.operator.groupDeadLetters(undefined, { limit: 1 });
    expect(items).toHaveLength(1);
  });

  test('Groups of dead letters are returned in pages, the last of which may be exactly full', async () => {
    const { operator } = context;
    await fail('a', 'b "quoted" \\', 'c', 'd');
    const whole = await operator.groupDeadLetters(undefined, { limit: 4 });
    expect(whole).toMatchObject({ items: { length: 4 }, next: undefined });
    const start = await operator.groupDeadLetters('notify', { limit: 2 });
    const rest = await operator.groupDeadLetters('notify', { limit: 2, after: start.next });
    expect([...start.items, ...rest.items]).toEqual(whole.items);
    expect(rest.next).toBeUndefined();
    const texts = [
      '',
      'x',
      '{}',
      '[]',
      '["a"]',
      '["","a"]',
      '["a",1]',
      '["a","b","c"]',
      '["a\\q","b"]',
      '["\u0000","b"]',
    ];
    for (const after of texts)
      await expect(operator.groupDeadLetters(undefined, { limit: 1, after })).rejects.toEqual(
        withCode('invalid-cursor'),
      );
    for (const limit of noLimits)
      await expect(operator.groupDeadLetters(undefined, { limit })).rejects.toEqual(
        withCode('invalid-page-limit'),
      );
  });

  test('A page has at most 100 groups of dead letters', async () => {
    await fail(...Array.from({ length: groupsMax + 1 }, (_unused, index) => `error ${index}`));
    const page = await context.operator.groupDeadLetters(undefined, { limit: 1_000 });
    expect(page.items).toHaveLength(groupsMax);
    const rest = await context.operator.groupDeadLetters(undefined, { limit: 1_000, after: page.next });
    expect(rest).toMatchObject({ items: { length: 1 }, next: undefined });
  });

  test('A group is counted up to 10,000, and says whether there are more', async () => {
    const [first] = await fail(...Array<string>(groupCountMax + 1).fill('no'));
    expect(await groups()).toMatchObject([{ count: groupCountMax, isLowerBound: true }]);
    await context.store.deadLetters.skip({ eventId: first ?? '' }, step);
    expect(await groups()).toMatchObject([{ count: groupCountMax, isLowerBound: false }]);
  });

  test('A change is listed with everything that was recorded of it, however long its texts are', async () => {
    const { operator } = context;
    const target = { filter: { handler: 'notify', errorLine: '𝒳' }, limit: 5, nested: [null, true, 'ü'] };
    const [done, failed, open] = [
      changeWith({ actor: 'ü'.repeat(255), reason: long, target }),
      changeWith({ operation: 'skip', reason: otherLong }),
      changeWith({ operation: 'pause' }),
    ];
    const dates: Date[] = [];
    for (const each of [done, failed, open]) {
      await operator.beginChange(each);
      dates.push((await operator.overview()).now);
      await context.fixture.pass(aSecond);
    }
    await operator.endChange(failed.changeId, {
      outcome: 'failed',
      count: 3,
      errorCode: 'shard-unavailable',
      errorText: long,
    });
    await operator.endChange(done.changeId, { outcome: 'done', count: Number.MAX_SAFE_INTEGER });
    const { now: endedDate } = await operator.overview();
    expect(await listed()).toEqual([
      { ...open, begunDate: dates[2], ended: undefined },
      {
        ...failed,
        begunDate: dates[1],
        ended: { outcome: 'failed', count: 3, errorCode: 'shard-unavailable', errorText: long, endedDate },
      },
      {
        ...done,
        begunDate: dates[0],
        ended: { outcome: 'done', count: Number.MAX_SAFE_INTEGER, errorCode: undefined, endedDate },
      },
    ]);
  });

  test('A beginning and an end are recorded once, and a repeat changes nothing', async () => {
    const { operator } = context;
    const begun = changeWith();
    await operator.beginChange(begun);
    const again = operator.beginChange({ ...begun, reason: 'another' });
    await expect(again).rejects.toEqual(withCode('constraint-violation'));
    expect(await listed()).toMatchObject([{ ...begun, ended: undefined }]);
    const { changeId } = begun;
    await operator.endChange(changeId, { outcome: 'done', count: 1 });
    for (const outcome of ['done', 'failed'] as const)
      await expect(operator.endChange(changeId, { outcome, count: 2 })).rejects.toEqual(
        withCode('constraint-violation'),
      );
    await expect(operator.beginChange(begun)).rejects.toEqual(withCode('constraint-violation'));
    expect(await listed()).toMatchObject([{ ...begun, ended: { outcome: 'done', count: 1 } }]);
  });

  test('An end is not listed before its beginning is recorded', async () => {
    const begun = changeWith();
    await context.operator.endChange(begun.changeId, { outcome: 'done', count: 1 });
    expect(await listed()).toEqual([]);
    await context.operator.beginChange(begun);
    expect(await listed()).toMatchObject([{ ...begun, ended: { count: 1 } }]);
  });

  test('Changes are listed the newest first, in pages of which the last may be exactly full', async () => {
    const { operator } = context;
    const ids: string[] = [];
    for (let index = 0; index < 4; index++) {
      const begun = changeWith();
      await operator.beginChange(begun);
      ids.unshift(begun.changeId);
      if (index > 0) await context.fixture.pass(aSecond);
    }
    const whole = await operator.changes({ limit: 4 });
    expect(whole.next).toBeUndefined();
    // The first two have the same date.
    const read = whole.items.map(({ changeId }) => changeId);
    expect([read.slice(0, 2), read.slice(2).toSorted()]).toEqual([ids.slice(0, 2), ids.slice(2).toSorted()]);
    for (const limit of [1, 2, 3]) {
      const paged: RecordedChange[] = [];
      let after: string | undefined;
      do {
        const page = await operator.changes({ limit, after });
        paged.push(...page.items);
        after = page.next;
      } while (after !== undefined);
      expect(paged).toEqual(whole.items);
    }
  });

  test('A list of changes refuses places that are not its own, and limits that are none', async () => {
    const { operator } = context;
    for (const after of [
      '',
      'x',
      '1',
      `1.000000/${'x'.repeat(36)}`,
      `x/${uuid()}`,
      `1/${uuid()}/2`,
      '\u0000',
    ])
      await expect(operator.changes({ limit: 1, after })).rejects.toEqual(withCode('invalid-cursor'));
    for (const limit of noLimits)
      await expect(operator.changes({ limit })).rejects.toEqual(withCode('invalid-page-limit'));
  });
}

function changeWith(fields: Partial<OperatorChange> = {}): OperatorChange {
  const what = { operation: 'replay', actor: 'olivia', reason: 'why', target: {} };
  return { changeId: uuid(), ...what, ...fields };
}

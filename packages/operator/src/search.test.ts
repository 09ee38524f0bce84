import { beforeEach, describe, expect, test } from 'vitest';

import { MemoryDatabases } from '../test/fixtures/memory-databases.js';

const anHour = 3_600_000;

let all: MemoryDatabases;
beforeEach(() => {
  all = new MemoryDatabases();
});

async function versionsOf(
  ...asked: Parameters<MemoryDatabases['operator']['events']>
): Promise<readonly number[]> {
  return (await all.operator.events(...asked)).items.map(({ event }) => event.modelVersion);
}

describe('a search', () => {
  test('follows the logs of all databases backwards, page by page, and loses nothing', async () => {
    const { operator, first, second, clock } = all;
    await first.write('a', [1, 2]);
    for (let version = 3; version <= 8; version++) {
      await first.write('a', [version], { principal: version % 2 === 0 ? 'bob' : 'alice' });
      await clock.advance(1_000);
      await second.write('b', [version]);
      await clock.advance(1_000);
    }
    const seen: string[] = [];
    let after: string | undefined;
    do {
      const page = await operator.events({}, { limit: 3, after });
      expect(page.failures).toEqual([]);
      seen.push(...page.items.map(({ event }) => `${event.modelId}${event.modelVersion}`));
      after = page.next;
    } while (after !== undefined);
    const inTurns = [8, 7, 6, 5, 4, 3].flatMap((version) => [`b${version}`, `a${version}`]);
    expect(seen).toEqual([...inTurns, 'a2', 'a1']);
    const since = new Date(clock.now().getTime() - 60_000);
    expect(await versionsOf({ principal: 'bob', since })).toEqual([8, 6, 4]);
    expect(await versionsOf({ shard: '1/0', modelId: 'b' }, { limit: 2 })).toEqual([8, 7]);
    expect(await versionsOf({ until: new Date(clock.now().getTime() - anHour) })).toEqual([]);
  });

  test('finds each event once, even if one database adds nothing to several pages', async () => {
    const { operator, first, second, clock } = all;
    const inOrder: string[] = [];
    // Long runs of one database after the other, so that a page has events of only one of them.
    for (const [database, model] of [
      [first, 'a'],
      [second, 'b'],
      [first, 'c'],
      [second, 'd'],
      [first, 'e'],
    ] as const) {
      for (let version = 1; version <= 5; version++) {
        await database.write(model, [version]);
        inOrder.unshift(`${model}${version}`);
        await clock.advance(1_000);
      }
    }
    for (const limit of [1, 2, 3, 7]) {
      const seen: string[] = [];
      let after: string | undefined;
      for (let pageCount = 0; pageCount === 0 || (after !== undefined && pageCount < 40); pageCount++) {
        const page = await operator.events({}, { limit, after });
        seen.push(...page.items.map(({ event }) => `${event.modelId}${event.modelVersion}`));
        after = page.next;
      }
      expect([limit, seen]).toEqual([limit, inOrder]);
    }
  });

  test.each([0, 1, 2, 3])(
    'finds each event once, even if one database does not answer for page %i, and others have more',
    async (failingPage) => {
      const { operator, first, second, clock } = all;
      for (let version = 1; version <= 6; version++) {
        await first.write('a', [version]);
        await clock.advance(1_000);
        await second.write('b', [version]);
        await clock.advance(1_000);
      }
      const seen: string[] = [];
      let after: string | undefined;
      let pageCount = 0;
      do {
        if (pageCount === failingPage) all.takeDown(1);
        const page = await operator.events({}, { limit: 2, after });
        expect(page.failures).toHaveLength(pageCount === failingPage ? 1 : 0);
        all.recover();
        seen.push(...page.items.map(({ event }) => `${event.modelId}${event.modelVersion}`));
        after = page.next;
      } while (after !== undefined && ++pageCount < 40);
      const versions = [1, 2, 3, 4, 5, 6];
      expect(seen.toSorted()).toEqual([
        ...versions.map((each) => `a${each}`),
        ...versions.map((each) => `b${each}`),
      ]);
    },
  );

  test('finds the events of a time among older and newer ones, and includes only its beginning', async () => {
    const base = all.clock.now().getTime();
    for (let hour = 0; hour < 8; hour++) {
      await all.first.write('t', [hour + 1]);
      await all.clock.advance(anHour);
    }
    const between = (from: number, to: number): Promise<readonly number[]> =>
      versionsOf({
        principal: 'alice',
        since: new Date(base + from * anHour),
        until: new Date(base + to * anHour),
      });
    expect(await between(2.5, 5.5)).toEqual([6, 5, 4]);
    expect(await between(2, 5)).toEqual([5, 4, 3]);
    expect(await between(3, 3)).toEqual([]);
  });

  test('shows no older event of one database before the newer ones of another are found', async () => {
    const { operator, first, second, clock } = all;
    const since = clock.now();
    await second.write('older', [1], { type: 'Wanted' });
    await clock.advance(1_000);
    await first.write('newer', [1], { type: 'Wanted' });
    await clock.advance(1_000);
    // As many as one search examines.
    await first.writeAtOnce(
      'others',
      Array.from({ length: 10_000 }, (_each, index) => index + 1),
    );
    const found: string[] = [];
    let after: string | undefined;
    do {
      const page = await operator.events({ type: 'Wanted', since }, { after });
      found.push(...page.items.map(({ event }) => event.modelId));
      after = page.next;
    } while (after !== undefined);
    expect(found).toEqual(['newer', 'older']);
  });

  test.each(['action', 'type', 'principal'])('by %s needs a time, a model or an action', async (field) => {
    await all.first.write('a', [1]);
    const filter = {
      [field]: field === 'principal' ? 'alice' : field === 'type' ? 'ThingChangedEvent' : 'ChangeThing',
    };
    await expect(all.operator.events(filter)).rejects.toMatchObject({ code: 'operator-request' });
    const until = new Date(all.clock.now().getTime() + 1);
    await expect(all.operator.events({ ...filter, until })).rejects.toMatchObject({
      code: 'operator-request',
    });
    const { actionId = '' } = all.first.log[0] ?? {};
    for (const bound of [{ modelId: 'a' }, { actionId }, { since: all.clock.now() }])
      expect(await versionsOf({ ...filter, ...bound })).toEqual([1]);
  });

  test('with an invalid date or an unknown shard is refused', async () => {
    const refused = { code: 'operator-request' };
    for (const date of [new Date(Number.NaN), new Date(-8.64e15)]) {
      await expect(all.operator.events({ since: date })).rejects.toMatchObject(refused);
      await expect(all.operator.events({ until: date })).rejects.toMatchObject(refused);
    }
    await expect(all.operator.events({ shard: '9/9' })).rejects.toMatchObject(refused);
  });

  test('tells texts apart that differ only at their ends', async () => {
    const [text, other] = ['x', 'y'].map((end) => `${'ü'.repeat(254)}${end}`) as [string, string];
    await all.first.write(text, [1], { principal: text, type: text });
    await all.first.write(other, [2], { principal: other, type: other });
    const since = all.clock.now();
    for (const filter of [{ modelId: text }, { principal: text, since }, { type: text, since }])
      expect(await versionsOf(filter)).toEqual([1]);
  });
});

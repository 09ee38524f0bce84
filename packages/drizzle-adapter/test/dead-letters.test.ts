// @module-tag postgres
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { step, withEvents } from './fixtures/blocked-models.js';
import { allSlots, beginningOf } from './fixtures/delivery-store.js';
import { lockWaiters } from './fixtures/lock-waiters.js';
import { query } from './fixtures/query.js';

describe('the heads of blocked models', () => {
  test('cannot be searched from an invalid cursor', async () => {
    const { store } = await withEvents('a', 1);
    const texts = ['1.000000', 'notify', 'Thing', 'a'];
    const nones = [
      ...['1.2.3', '1', '-1.000000', ''].map((seconds) => texts.with(0, seconds)),
      ...[1, 2, 3].map((place) => texts.with(place, 'a\u0000')),
      texts.slice(1),
      [...texts, 'a'],
      ['1.000000', 'notify', 'Thing', 1],
    ];
    for (const after of ['', 'x', '{}', ...nones.map((none) => JSON.stringify(none))])
      await expect(store.deadLetters.find({}, { limit: 1, after })).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    const after = JSON.stringify(texts);
    expect(await store.deadLetters.find({}, { limit: 1, after })).toEqual({ items: [], next: undefined });
  });

  test('are listed in pages of bounded size, however large they are', { tags: ['slow'] }, async () => {
    const { store, fail, write, url } = await withEvents('a', 1);
    for (const modelId of ['b', 'c', 'd']) await write(modelId, 1);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 100);
    for (const event of events) await fail({ event });
    const megabytes = (count: number): Promise<unknown> =>
      query(url, `update eventlog.events set payload = to_jsonb(repeat('x', ${count} * 1000000))`);
    for (const [size, counts] of [
      [0, [4]],
      [7, [3, 1]],
      [20, [1, 1, 1, 1]],
    ] as const) {
      await megabytes(size);
      const pages: string[][] = [];
      let after: string | undefined;
      do {
        const page = await store.deadLetters.find({}, { limit: 10, ...(after !== undefined && { after }) });
        pages.push(page.items.map(({ event }) => event.id));
        after = page.next;
      } while (after !== undefined);
      expect(pages.map(({ length }) => length)).toEqual(counts);
      expect(pages.flat()).toEqual(events.map(({ id }) => id));
    }
  });

  test.each(['skip', 'replay'] as const)(
    'that two operators %s at the same time are changed once, and the next event stays untouched',
    async (operation) => {
      const { store, events, fail, url } = await withEvents('a', 1, 2, 3);
      await fail({ event: events[0]!, dead: true });
      const change = () => store.deadLetters[operation]({ modelId: 'a' }, step);
      const counts = await behindLock(url, [change, change]);
      expect(counts.toSorted((one, other) => one - other)).toEqual([0, 1]);
      const [row] = await query(url, 'select model_version::int, ordinal, dead from eventlog.blocked_models');
      const next = operation === 'skip' ? { model_version: 1, ordinal: 1 } : { model_version: 1, ordinal: 0 };
      expect(row).toEqual({ ...next, dead: false });
    },
  );

  test.each(['skip', 'replay'] as const)(
    'are not changed by a %s that finds another event at the place where it has waited',
    async (operation) => {
      const { store, events, fail, url } = await withEvents('a', 1, 2, 3);
      await fail({ event: events[0]!, dead: true });
      const change = () => store.deadLetters[operation]({ modelId: 'a' }, step);
      const meanwhile = `update eventlog.blocked_models
        set model_version = 2, ordinal = 0, event_id = '${events[1]!.id}', dead = false, attempts = 1, due_date = now()`;
      expect(await behindLock(url, [change], meanwhile)).toEqual([0]);
      const found = 'select model_version::int, attempts, dead from eventlog.blocked_models';
      expect(await query(url, found)).toEqual([{ model_version: 2, attempts: 1, dead: false }]);
    },
  );
});

/** Lets changes wait for the row of a blocked model, and ends with what they return once it is free. */
async function behindLock(
  url: string,
  changes: readonly (() => Promise<{ readonly count: number }>)[],
  meanwhile = 'select',
): Promise<readonly number[]> {
  const client = new pg.Client(url);
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin; select from eventlog.blocked_models for update');
  const changing = changes.map((change) => change());
  await expect.poll(() => lockWaiters(url), { timeout: 30_000 }).toBe(changes.length);
  await client.query(`${meanwhile}; commit`);
  return (await Promise.all(changing)).map(({ count }) => count);
}

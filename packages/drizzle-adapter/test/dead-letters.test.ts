// @module-tag postgres
import { describe, expect, test } from 'vitest';
import { withEvents } from './fixtures/blocked-models.js';
import { allSlots, beginningOf } from './fixtures/delivery-store.js';
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
});

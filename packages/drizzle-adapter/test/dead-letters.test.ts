// @module-tag postgres
import type { DeliverableEvent } from '@framework/core/adapter';
import { describe, expect, test } from 'vitest';
import { withEvents } from './fixtures/blocked-events.js';
import { query } from './fixtures/query.js';

describe('blocked events', () => {
  test('cannot be searched from an invalid cursor', async () => {
    const { store, events } = await withEvents('a', 1);
    const [{ id }] = events as [DeliverableEvent];
    const nones = ['1.2.3', '1'].map((seconds) => `${seconds}/${id}/one`);
    const places = ['-'.repeat(36) + '/one', `${id}/o\u0000e`, `${id}/${'o'.repeat(256)}`];
    for (const none of [...nones, ...places.map((place) => `1.000000/${place}`)]) {
      await expect(store.deadLetters.find({}, { limit: 1, after: none })).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    }
  });

  test('are listed in pages of bounded size, however large they are', { tags: ['slow'] }, async () => {
    const { store, events, block, url } = await withEvents('a', 1, 2, 3, 4);
    for (const event of events) await block({ event });
    const megabytes = (count: number): Promise<unknown> =>
      query(
        url,
        `update eventlog.parked_events
         set event = jsonb_set(event, '{payload}', to_jsonb(repeat('x', ${count} * 1000000)))`,
      );
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

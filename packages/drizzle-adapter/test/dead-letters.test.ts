import type { DeliverableEvent } from '@framework/core';
import { describe, expect, it } from 'vitest';
import { withEvents } from './fixtures/parked-events.js';
import { query } from './fixtures/query.js';

describe('parked events', () => {
  it('are found in pages, the oldest first', async () => {
    const { store, events, park } = await withEvents('a', 1, 2, 3, 4, 5);
    for (const event of events) await park({ event });
    const found: string[] = [];
    let after: string | undefined;
    do {
      const page = await store.deadLetters.find(
        { modelId: 'a' },
        { limit: 2, ...(after !== undefined && { after }) },
      );
      found.push(...page.items.map(({ event }) => event.id));
      after = page.next;
    } while (after !== undefined);
    expect(found).toEqual(events.map(({ id }) => id));
    const [{ id }] = events as [DeliverableEvent];
    for (const none of ['x', `1.2.3/${id}/one`, `1/${'-'.repeat(36)}/one`, `1/${id}/o\u0000e`]) {
      await expect(store.deadLetters.find({}, { limit: 1, after: none })).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    }
    await expect(store.deadLetters.find({}, { limit: Number.NaN })).rejects.toMatchObject({
      code: 'invariant-violation',
    });
  });

  it('are found in pages of bounded size, however large they are', async () => {
    const { store, events, park, url } = await withEvents('a', 1, 2, 3, 4);
    for (const event of events) await park({ event });
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

  it.each(['a\u0000b', '\ud83d'])('are none for a filter that nothing can match: %j', async (text) => {
    const { store, events, park } = await withEvents('a', 1);
    await park({ event: events[0]!, dead: true });
    for (const filter of [{ handler: text }, { modelId: text }, { eventType: text }]) {
      expect((await store.deadLetters.find(filter, { limit: 1 })).items).toEqual([]);
      expect((await store.deadLetters.skip(filter, { limit: 1 })).count).toBe(0);
    }
    expect(await store.cursors.find(text)).toBeUndefined();
  });
});

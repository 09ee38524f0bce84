import type { DeliverableEvent, BlockedFilter } from '@framework/core/adapter';
import { describe, expect, it } from 'vitest';
import { allSlots, beginningOf } from './fixtures/delivery-store.js';
import { step, withEvents } from './fixtures/blocked-events.js';
import { query } from './fixtures/query.js';

describe('blocked events', () => {
  it('are found in pages, the oldest first', async () => {
    const { store, events, block } = await withEvents('a', 1, 2, 3, 4, 5);
    for (const event of events) await block({ event });
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
    const nones = ['1.2.3', '1'].map((seconds) => `${seconds}/${id}/one`);
    const places = ['-'.repeat(36) + '/one', `${id}/o\u0000e`, `${id}/${'o'.repeat(256)}`];
    for (const none of ['x', ...nones, ...places.map((place) => `1.000000/${place}`)]) {
      await expect(store.deadLetters.find({}, { limit: 1, after: none })).rejects.toMatchObject({
        code: 'invalid-cursor',
      });
    }
    await expect(store.deadLetters.find({}, { limit: Number.NaN })).rejects.toMatchObject({
      code: 'invariant-violation',
    });
  });

  it('are found in pages of bounded size, however large they are', { tags: ['slow'] }, async () => {
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

  it('are found, replayed and skipped by all that a filter names', async () => {
    const { store, block, write, url } = await withEvents('a', 1);
    await write('b', 1);
    await query(url, `update eventlog.events set event_type = 'ThingMadeEvent' where model_id = 'b'`);
    const { events } = await store.log.read(allSlots, await beginningOf(store), 10);
    const [a, b] = events as [DeliverableEvent, DeliverableEvent];
    await block({ event: a, dead: true }, { event: b, dead: true }, { event: b, handler: 'elsewhere' });
    const found = async (filter: BlockedFilter): Promise<readonly string[]> =>
      (await store.deadLetters.find(filter, step)).items.map(
        ({ handler, event }) => `${handler} ${event.modelId}`,
      );
    expect(await found({ eventId: a.id })).toEqual(['notify a']);
    expect(await found({ eventId: `${a.id}0` })).toEqual([]);
    expect(await found({ eventId: `0${a.id}` })).toEqual([]);
    expect(await found({ eventType: 'ThingChangedEvent' })).toEqual(['notify a']);
    expect(await found({ modelId: 'a' })).toEqual(['notify a']);
    expect(await found({ handler: 'elsewhere' })).toEqual(['elsewhere b']);
    expect(await found({ dead: false })).toEqual(['elsewhere b']);
    expect(await found({ modelId: 'a', handler: 'elsewhere' })).toEqual([]);
    expect((await store.deadLetters.replay({ eventType: 'ThingMadeEvent' }, step)).count).toBe(1);
    expect((await found({ dead: false })).toSorted()).toEqual(['elsewhere b', 'notify b']);
    expect((await store.deadLetters.skip({ modelId: 'b', dead: false, handler: 'notify' }, step)).count).toBe(
      1,
    );
    expect((await found({})).toSorted()).toEqual(['elsewhere b', 'notify a']);
  });

  it('are replayed once, also when they fail again between two steps', async () => {
    const { store, events, block, url } = await withEvents('a', 1, 2);
    for (const event of events) await block({ event, dead: true });
    const first = await store.deadLetters.replay({}, { limit: 1 });
    await query(url, 'update eventlog.parked_events set dead = true');
    const second = await store.deadLetters.replay({}, { limit: 1, after: first.next! });
    expect([first.count, second.count]).toEqual([1, 1]);
    const { items } = await store.deadLetters.find({ dead: false }, step);
    expect(items.map(({ event }) => event.id)).toEqual([events[1]!.id]);
  });

  it.each(['a\u0000b', '\ud83d'])('are none for a filter that nothing can match: %j', async (text) => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]!, dead: true });
    for (const filter of [{ handler: text }, { modelId: text }, { eventType: text }]) {
      expect((await store.deadLetters.find(filter, { limit: 1 })).items).toEqual([]);
      expect((await store.deadLetters.skip(filter, { limit: 1 })).count).toBe(0);
    }
    expect(await store.cursors.find(text)).toBeUndefined();
  });
});

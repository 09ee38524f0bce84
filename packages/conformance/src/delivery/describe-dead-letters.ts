import { type BlockedFilter, positionAfter } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { at } from '../suite-context.js';
import { type DeliveryContext, contentOf, modelOf, never, step } from './delivery-context.js';

/** Registers tests of what operators see of blocked models, and do with dead letters. */
export function describeDeadLetters(context: DeliveryContext): void {
  test('A dead letter blocks its model until it is replayed or skipped', async () => {
    const [first, second] = await context.holdWith('a', 1, 2);
    await context.fail({ event: first, dead: true, error: 'poison', attempts: 3 });
    expect(await context.heads()).toEqual([]);
    expect(await context.rows({ dead: true })).toMatchObject([
      { error: 'poison', attempts: 3, nextAttemptDate: undefined },
    ]);
    expect((await context.store.deadLetters.replay({ handler: 'another' }, step)).count).toBe(0);
    expect((await context.store.deadLetters.replay({ handler: 'notify' }, step)).count).toBe(1);
    const again = await context.head();
    expect(again).toMatchObject({ attempts: 0, uncounted: 1, hasFailed: true, event: { id: first.id } });
    // A failure from before the replay changes nothing.
    for (const uncounted of [0, 1])
      await context.fail({ event: first, before: { attempts: 0, uncounted }, dead: uncounted === 1 });
    expect((await context.store.deadLetters.skip({ eventId: first.id }, step)).count).toBe(1);
    expect(await context.heads()).toMatchObject([
      { position: positionAfter(first), hasFailed: false, attempts: 0, event: { id: second.id } },
    ]);
  });

  test('A model whose last event is skipped stays blocked until it is found to have no more', async () => {
    const [event] = await context.holdWith('a', 1);
    await context.fail({ event, dead: true });
    await context.store.deadLetters.skip({}, step);
    expect(await context.rows()).toEqual([]);
    const [head] = await context.heads();
    expect(head).toMatchObject({ position: positionAfter(event), event: undefined, hasFailed: false });
    await context.move(event, positionAfter(event), { ends: true });
    expect(await context.heads()).toEqual([]);
  });

  test('A waiting head is skipped only on explicit request, and the events behind it continue', async () => {
    const [first, second] = await context.holdWith('a', 1, 2);
    await context.fail({ event: first, retryAfterMs: never });
    const { id: eventId } = first;
    for (const filter of [{ eventId }, { eventId, dead: true }])
      expect((await context.store.deadLetters.skip(filter, step)).count).toBe(0);
    expect((await context.store.deadLetters.replay({ eventId, dead: false }, step)).count).toBe(0);
    expect((await context.store.deadLetters.skip({ eventId, dead: false }, step)).count).toBe(1);
    expect(await context.heads()).toMatchObject([{ event: { id: second.id }, hasFailed: false }]);
    expect(await context.store.blocked.nextDueMs(context.places())).toBe(0);
    // The next event has not failed, so repeating it changes nothing.
    expect((await context.store.deadLetters.skip({ modelId: 'a', dead: false }, step)).count).toBe(0);
    expect(await context.heads()).toMatchObject([{ event: { id: second.id }, hasFailed: false }]);
  });

  test('Operators find the head of a model: the event that has failed, or the next one to read', async () => {
    const [first, second, third] = await context.holdWith('a', 1, 2, 3);
    await context.fail({ event: second }, { event: first, handler: 'elsewhere' });
    const { deadLetters } = context.store;
    const headOf = async (handler: string): Promise<string | undefined> =>
      (await deadLetters.headOf(modelOf(first, handler)))?.event.id;
    expect(await headOf('notify')).toBe(second.id);
    expect(await headOf('elsewhere')).toBe(first.id);
    expect(await headOf('nobody')).toBeUndefined();
    expect(await deadLetters.headOf({ ...modelOf(first), modelName: 'Other' })).toBeUndefined();
    await context.move(first, positionAfter(second));
    const row = await deadLetters.headOf(modelOf(first));
    expect(row).toMatchObject({ attempts: 0, uncounted: 0, error: undefined, dead: false });
    expect(row && contentOf(row.event)).toEqual(contentOf(third));
    // It is not listed, because it has not failed.
    expect(await context.rows({ handler: 'notify' })).toEqual([]);
  });

  test('The heads of blocked models are found in pages, oldest first', async () => {
    await context.holdAll();
    const ids: string[] = [];
    for (const model of ['e', 'b', 'd', 'a', 'c']) ids.push(...(await context.write(model, 1)));
    const events = await context.logged();
    for (const event of events) {
      await context.fail({ event });
      await context.fixture.pass(1);
    }
    await context.fail({ event: at(events, 2), handler: 'elsewhere' });
    const found: string[] = [];
    let after: string | undefined;
    do {
      const place = { limit: 2, ...(after !== undefined && { after }) };
      const page = await context.store.deadLetters.find({ handler: 'notify' }, place);
      found.push(...page.items.map(({ event }) => event.id));
      after = page.next;
    } while (after !== undefined);
    expect(found).toEqual(ids);
    // A model that moves keeps its place.
    await context.fail({ event: at(events, 0), before: { attempts: 1, uncounted: 0 }, attempts: 2 });
    expect((await context.row()).event.id).toBe(ids[0]);
    await expect(context.store.deadLetters.find({}, { limit: 1, after: 'x' })).rejects.toMatchObject({
      code: 'invalid-cursor',
    });
    await expect(context.store.deadLetters.find({}, { limit: Number.NaN })).rejects.toMatchObject({
      code: 'invalid-page-limit',
    });
  });

  test('Blocked models are found, replayed and skipped by every field of a filter', async () => {
    await context.holdWith('a', 1);
    await context.writeAtOnce({ modelId: 'b', modelVersion: 1, type: 'ThingMadeEvent' });
    const events = await context.logged();
    const [a, b] = [at(events, 0), at(events, 1)];
    await context.fail(
      { event: a, dead: true, error: 'no\nluck' },
      { event: b, dead: true },
      { event: b, handler: 'elsewhere' },
    );
    const found = async (filter: BlockedFilter): Promise<readonly string[]> =>
      (await context.rows(filter)).map(({ handler, event }) => `${handler} ${event.modelId}`).toSorted();
    expect(await found({ eventId: a.id })).toEqual(['notify a']);
    expect(await found({ eventId: `${a.id}0` })).toEqual([]);
    expect(await found({ eventId: `0${a.id}` })).toEqual([]);
    expect(await found({ eventType: 'ThingChangedEvent' })).toEqual(['notify a']);
    expect(await found({ modelId: 'a' })).toEqual(['notify a']);
    expect(await found({ handler: 'elsewhere' })).toEqual(['elsewhere b']);
    expect(await found({ dead: false })).toEqual(['elsewhere b']);
    expect(await found({ errorLine: 'no' })).toEqual(['notify a']);
    expect(await found({ modelId: 'a', handler: 'elsewhere' })).toEqual([]);
    expect((await context.store.deadLetters.replay({ eventType: 'ThingMadeEvent' }, step)).count).toBe(1);
    expect((await found({ dead: false })).toSorted()).toEqual(['elsewhere b', 'notify b']);
    expect(
      (await context.store.deadLetters.skip({ modelId: 'b', dead: false, handler: 'notify' }, step)).count,
    ).toBe(1);
    expect(await found({})).toEqual(['elsewhere b', 'notify a']);
  });

  test('Dead letters are replayed and skipped in steps of limited size, each once', async () => {
    for (const change of ['replay', 'skip'] as const) {
      await context.fixture.clear();
      await context.holdAll();
      for (const model of ['a', 'b', 'c', 'd', 'e']) await context.write(model, 1);
      const events = await context.logged();
      await context.fail(...events.map((event) => ({ event, dead: true })));
      const counts: number[] = [];
      let after: string | undefined;
      do {
        const place = { limit: 2, ...(after !== undefined && { after }) };
        const done = await context.store.deadLetters[change]({ handler: 'notify' }, place);
        counts.push(done.count);
        after = done.next;
      } while (after !== undefined);
      expect(counts).toEqual([2, 2, 1]);
      expect(await context.heads()).toHaveLength(5);
    }
  });

  test('A dead letter is replayed once, even if it fails again between two steps', async () => {
    await context.holdWith('a', 1);
    await context.write('b', 1);
    for (const event of await context.logged()) {
      await context.fail({ event, dead: true });
      await context.fixture.pass(1);
    }
    const first = await context.store.deadLetters.replay({}, { limit: 1 });
    const { event } = await context.row();
    await context.fail({ event, before: { attempts: 0, uncounted: 1 }, dead: true, error: 'again' });
    const second = await context.store.deadLetters.replay({}, { limit: 1, after: first.next ?? '' });
    expect([first.count, second.count]).toEqual([1, 1]);
    expect(await context.rows({ dead: false })).toMatchObject([{ event: { modelId: 'b' } }]);
    expect(await context.rows({ dead: true })).toMatchObject([{ error: 'again', event: { modelId: 'a' } }]);
  });

  test('A dead letter is due from the time of its replay, however long ago it was blocked', async () => {
    await context.holdWith('a', 1);
    await context.write('b', 1);
    const events = await context.logged();
    await context.fail({ event: at(events, 0), dead: true });
    await context.fixture.pass(never);
    await context.fail({ event: at(events, 1) });
    await context.fixture.pass(1);
    await context.store.deadLetters.replay({}, step);
    const heads = await context.heads();
    expect(heads.map(({ modelId }) => modelId)).toEqual(['b', 'a']);
    const row = await context.row({ modelId: 'a' });
    expect(row.nextAttemptDate).toEqual(new Date(row.blockedDate.getTime() + never + 1));
  });

  test.each(['a\u0000b', '\ud83d'])(
    'A filter with a text that no row can have matches nothing: %j',
    async (text) => {
      const [event] = await context.holdWith('a', 1);
      await context.fail({ event, dead: true });
      for (const filter of [{ handler: text }, { modelId: text }, { eventType: text }, { eventId: text }]) {
        expect(await context.rows(filter)).toEqual([]);
        expect((await context.store.deadLetters.skip(filter, step)).count).toBe(0);
      }
    },
  );
}

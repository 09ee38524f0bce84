import type { LogFilter, TrackedEvent } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { at, firstShard, namespace, noLimits, principal } from '../suite-context.js';
import {
  type DeliveryContext,
  type WrittenEvent,
  contentOf,
  idsOf,
  never,
  uuid,
  withCode,
} from './delivery-context.js';

const aSecond = 1_000;
/** How many events one search examines, and how many of an action are returned. */
const examinedMax = 10_000;
const eventsOfActionMax = 1_000;
const keysMax = 100;

/** Two texts of the maximum length that differ only in their last character, which needs four bytes. */
const [long, otherLong] = ['𝒳', '𝒴'].map((end) => `${'ü'.repeat(250)}${end}`) as [string, string];
/** Texts that no database can store. */
const unstorable = ['\u0000', 'a\u0000b', '\ud800'];

/** Registers tests of what operators find in the log and among the keys of a database. */
export function describeOperatorLog(context: DeliveryContext): void {
  const search = async (filter: LogFilter = {}, limit = 1_000): Promise<readonly string[]> =>
    idsOfTracked((await context.operator.searchEvents(filter, { limit })).items);

  test('An overview has the date of the newest event, and the time of the database', async () => {
    const before = await context.operator.overview();
    expect(before.newestEventDate).toBeUndefined();
    await context.write('a', 1, 2);
    await context.fixture.pass(aSecond);
    const ids = await context.write('a', 3);
    await context.fixture.pass(aSecond);
    await context.writeAtOnce();
    const [newest] = (await context.operator.searchEvents({}, { limit: 1 })).items;
    expect(newest?.event.id).toBe(ids[0]);
    const overview = await context.operator.overview();
    expect(overview.newestEventDate).toEqual(newest?.event.createdDate);
    expect(overview.now.getTime() - before.now.getTime()).toBeGreaterThanOrEqual(2 * aSecond);
    expect(overview).toMatchObject({
      server: expect.stringMatching(/\w/) as string,
      epoch: before.epoch,
      eventCountEstimate: expect.any(Number) as number,
      databaseBytes: expect.any(Number) as number,
    });
  });

  test('Events are found with everything that the log has of them', async () => {
    const startedDate = new Date('2026-02-03T04:05:06.789Z');
    const action = { name: 'Rename', params: '{"to":"Ünï"}', headers: '{"trace":"𝒳"}', startedDate };
    const event = {
      modelId: 'ada/Übung',
      modelVersion: 7,
      type: 'Renamed',
      payload: '{"to":["𝒳",null,1.5]}',
    };
    await context.act({ ...action, principal: long }, event, { ...event, modelVersion: 8 });
    const logged = await context.logged();
    const { items } = await context.operator.searchEvents({}, { limit: 10 });
    expect(items.map((item) => contentOf(item.event))).toEqual(logged.map(contentOf).toReversed());
    const history = await context.operator.history('ada/Übung', { limit: 10 });
    expect(history.items.map((item) => contentOf(item.event))).toEqual(logged.map(contentOf));
    expect(items[0]?.event).toMatchObject({ principal: long, actionName: 'Rename', startedDate });
  });

  test('A search finds events that match every field of its filter, however long their texts are', async () => {
    const [id, otherId] = [uuid(), uuid()];
    const write = (actionId: string, text: string): Promise<readonly string[]> =>
      context.act(
        { id: actionId, name: text, principal: text },
        { modelId: text, modelVersion: 1, type: text },
      );
    const [wanted] = [await write(id, long), await write(otherId, otherLong)];
    const { createdDate } = at(await context.logged(), 0);
    const fields: LogFilter = { modelId: long, actionId: id, action: long, type: long, principal: long };
    for (const [name, value] of Object.entries(fields))
      expect(await search({ [name]: value })).toEqual(wanted);
    const all = { ...fields, since: createdDate, until: new Date(createdDate.getTime() + aSecond) };
    expect(await search(all)).toEqual(wanted);
    for (const name of Object.keys(fields)) {
      const other = name === 'actionId' ? otherId : otherLong;
      expect(await search({ ...all, [name]: other })).toEqual([]);
    }
    expect(await search({ actionId: 'no id' })).toEqual([]);
  });

  test.each<[string, LogFilter]>([
    ['all events', {}],
    ['a model', { modelId: 'a' }],
    ['a type', { type: 'ThingChangedEvent' }],
  ])(
    'A search for %s includes an event of exactly its beginning, and excludes one of exactly its end',
    async (_what, filter) => {
      const written: string[] = [];
      for (const version of [1, 2, 3]) {
        written.push(...(await context.write('a', version)));
        await context.fixture.pass(aSecond);
      }
      const [first, second, third] = written;
      const date = at(await context.logged(), 1).createdDate;
      expect(await search({ ...filter, since: date })).toEqual([third, second]);
      expect(await search({ ...filter, until: date })).toEqual([first]);
      const next = new Date(date.getTime() + 1);
      expect(await search({ ...filter, since: next })).toEqual([third]);
      expect(await search({ ...filter, until: next })).toEqual([second, first]);
      expect(await search({ ...filter, since: date, until: next })).toEqual([second]);
      expect(await search({ ...filter, since: date, until: date })).toEqual([]);
    },
  );

  test.each<[string, (actionId: string) => LogFilter]>([
    ['all events', () => ({})],
    ['a model', () => ({ modelId: 'a' })],
    ['an action', (actionId) => ({ actionId })],
  ])(
    'A search for %s goes backwards page by page, and ends with a page that is exactly full',
    async (_what, filterOf) => {
      const actionId = uuid();
      const versions = [1, 2, 3, 4].map((modelVersion) => ({ modelId: 'a', modelVersion }));
      const newestFirst = (await context.act({ id: actionId }, ...versions)).toReversed();
      const filter = filterOf(actionId);
      const whole = await context.operator.searchEvents(filter, { limit: 4 });
      expect(whole).toMatchObject({ items: { length: 4 }, next: undefined, reachedDate: undefined });
      const start = await context.operator.searchEvents(filter, { limit: 2 });
      expect(start.reachedDate).toEqual(at(start.items, 1).event.createdDate);
      expect(start.next).toBe(at(start.items, 1).place);
      const rest = await context.operator.searchEvents(filter, { limit: 2, after: start.next });
      expect(rest).toMatchObject({ next: undefined, reachedDate: undefined });
      expect(idsOfTracked([...start.items, ...rest.items])).toEqual(newestFirst);
      for (const [index, { place }] of whole.items.entries()) {
        const behind = await context.operator.searchEvents(filter, { limit: 4, after: place });
        expect(idsOfTracked(behind.items)).toEqual(newestFirst.slice(index + 1));
      }
    },
  );

  test('A search and a history refuse places that are not their own, and limits that are none', async () => {
    const { operator } = context;
    await context.write('a', 1, 2);
    const ofLog = at((await operator.searchEvents({}, { limit: 1 })).items, 0).place;
    const ofModel = at((await operator.searchEvents({ modelId: 'a' }, { limit: 1 })).items, 0).place;
    const garbage = [
      '',
      ' ',
      'x',
      '-1',
      '1.5',
      'null',
      '9'.repeat(40),
      `${ofLog} `,
      `${ofModel}.1`,
      '\u0000',
    ];
    for (const after of [...garbage, ofModel])
      await expect(operator.searchEvents({}, { limit: 1, after })).rejects.toEqual(
        withCode('invalid-cursor'),
      );
    for (const after of [...garbage, ofLog]) {
      const page = { limit: 1, after };
      await expect(operator.searchEvents({ modelId: 'a' }, page)).rejects.toEqual(withCode('invalid-cursor'));
      await expect(operator.history('a', page)).rejects.toEqual(withCode('invalid-cursor'));
    }
    for (const limit of noLimits) {
      await expect(operator.searchEvents({}, { limit })).rejects.toEqual(withCode('invalid-page-limit'));
      await expect(operator.history('a', { limit })).rejects.toEqual(withCode('invalid-page-limit'));
    }
  });

  test('A search examines 10,000 events, and continues behind them', async () => {
    const { operator } = context;
    const [wanted] = await context.writeAtOnce({ modelId: 'a', modelVersion: 1, type: 'Wanted' });
    await context.writeAtOnce(
      ...Array.from({ length: examinedMax - 1 }, (_unused, index) => versionOfA(index + 2)),
    );
    const filters: readonly LogFilter[] = [{ type: 'Wanted' }, { modelId: 'a', type: 'Wanted' }];
    for (const filter of filters) expect(await search(filter)).toEqual([wanted]);
    await context.writeAtOnce(versionOfA(examinedMax + 1));
    for (const filter of filters) {
      const start = await operator.searchEvents(filter, { limit: 1 });
      expect(start.items).toEqual([]);
      expect(start.reachedDate).toBeInstanceOf(Date);
      const rest = await operator.searchEvents(filter, { limit: 1, after: start.next });
      expect(idsOfTracked(rest.items)).toEqual([wanted]);
      expect(rest.next).toBeUndefined();
    }
    const page = await operator.searchEvents({}, { limit: 1_000 });
    expect(page.items).toHaveLength(1_000);
  });

  test('Events come without payload and params if these have more than 65,536 bytes', async () => {
    const { operator } = context;
    const actionId = uuid();
    // The quotes, and the params, have two bytes each.
    const text = 'ü'.repeat(32_766);
    const payloads = [text, `${text}x`].map((payload) => JSON.stringify(payload));
    const written = payloads.map((payload, index) => ({ modelId: 'a', modelVersion: index + 1, payload }));
    await context.act({ id: actionId }, ...written);
    const whole = { payload: text, actionParams: {} };
    const found = [
      (await operator.searchEvents({}, { limit: 2 })).items.toReversed(),
      (await operator.history('a', { limit: 2 })).items,
      (await operator.findAction(actionId))?.events ?? [],
    ];
    for (const [exact, larger] of found.map((items) => items.map(({ event }) => event))) {
      expect(exact).toMatchObject(whole);
      expect(exact?.omitted).not.toBe(true);
      expect(larger).toMatchObject({ omitted: true, modelVersion: 2, bytes: 65_537 });
      expect([larger?.payload, larger?.actionParams]).toEqual([undefined, undefined]);
    }
  });

  test('Events are found with what became of them for each handler, in the order of the handlers', async () => {
    const { operator, store } = context;
    const [first, , , fourth] = await context.holdWith('a', 1, 2, 3, 4);
    await context.fail({ event: first, doneIds: [fourth.id] });
    await context.fail({ event: at(await context.logged(), 1), handler: 'elsewhere', dead: true });
    await store.cursors.register({ name: 'after', aliases: [], startFrom: 'now' });
    await store.cursors.setPaused('notify', true);
    const { items } = await operator.history('a', { limit: 4 });
    expect(items.map(({ deliveries }) => deliveries.map(({ handler }) => handler))).toEqual(
      items.map(() => ['after', 'elsewhere', 'notify']),
    );
    expect(items.map(({ deliveries }) => deliveries.map(({ state }) => state))).toEqual([
      ['passed', 'pending', 'blocked'],
      ['passed', 'dead-letter', 'blocked'],
      ['passed', 'blocked', 'blocked'],
      ['passed', 'blocked', 'pending'],
    ]);
    await store.cursors.retire('after', { discardBlocked: false });
    const { deliveries } = at((await operator.searchEvents({}, { limit: 1 })).items, 0);
    expect(deliveries.map(({ handler }) => handler)).toEqual(['elsewhere', 'notify']);
  });

  test('A history is ordered by version and ordinal, and loses nothing of models with the same id', async () => {
    const { operator } = context;
    const event = { modelId: 'a', modelVersion: 1 };
    const [later, earlier] = await context.writeAtOnce({ ...event, ordinal: 1 }, { ...event, ordinal: 0 });
    const [other] = await context.writeAtOnce({ ...event, modelName: 'Other' });
    const [second] = await context.writeAtOnce({ ...event, modelVersion: 2 });
    await context.write('b', 1);
    const inOrder = [earlier, other, later, second];
    const whole = await operator.history('a', { limit: 4 });
    expect(idsOfTracked(whole.items)).toEqual(inOrder);
    expect(whole.next).toBeUndefined();
    for (const limit of [1, 2, 3]) {
      const read: TrackedEvent[] = [];
      let after: string | undefined;
      do {
        const page = await operator.history('a', { limit, after });
        read.push(...page.items);
        after = page.next;
      } while (after !== undefined);
      expect(idsOfTracked(read)).toEqual(inOrder);
    }
  });

  test('An action is found with everything that it committed, with or without events', async () => {
    const { operator } = context;
    const startedDate = new Date('2026-02-03T04:05:06.789Z');
    const action = { name: 'Rename', params: '{"to":"𝒳"}', startedDate, principal: long };
    const [id, silentId] = [uuid(), uuid()];
    const events = [1, 0].map((ordinal) => ({ modelId: 'a', modelVersion: 2 - ordinal, ordinal }));
    const ids = await context.act({ id, ...action }, ...events);
    await context.act({ id: silentId, ...action, principal: otherLong });
    const { createdDate } = at(await context.logged(), 0);
    const found = await operator.findAction(id);
    const expected = { actionName: 'Rename', actionParams: { to: '𝒳' }, namespace, startedDate, createdDate };
    expect(found).toMatchObject({ ...expected, actionId: id, principal: long });
    expect(idsOfTracked(found?.events ?? [])).toEqual(ids.toReversed());
    const silent = { ...expected, actionId: silentId, principal: otherLong, events: [] };
    expect(await operator.findAction(silentId)).toEqual(silent);
    for (const unknown of [uuid(), 'no id', '']) expect(await operator.findAction(unknown)).toBeUndefined();
  });

  test('An action is found with at most 1,000 of its events', async () => {
    const events = Array.from({ length: eventsOfActionMax + 1 }, (_unused, index) => ({
      modelId: 'a',
      modelVersion: index + 1,
    }));
    const [exact, more] = [uuid(), uuid()];
    await context.act({ id: exact }, ...events.slice(1));
    const ids = await context.act({ id: more }, ...events);
    expect((await context.operator.findAction(exact))?.events).toHaveLength(eventsOfActionMax);
    const found = await context.operator.findAction(more);
    expect(idsOfTracked(found?.events ?? [])).toEqual(ids.slice(0, eventsOfActionMax));
  });

  test('A key is found with its action, its dates and its source, even when it has expired', async () => {
    const { operator } = context;
    const record = { namespace, fingerprint: 'f', result: undefined, lifetimeMs: 60_000 };
    const [id, otherId] = [uuid(), uuid()];
    const event = { modelId: 'a', modelVersion: 1 };
    await context.act(
      { id, name: 'One', key: { ...record, key: long, principal: 'bob', source: long } },
      event,
    );
    await context.act({ id: otherId, name: 'Two', key: { ...record, key: long, principal: 'ada' } });
    await context.act({ key: { ...record, key: otherLong, principal: 'ada' } });
    await context.fixture.pass(never);
    const { createdDate } = at(await context.logged(), 0);
    const expiresDate = new Date(createdDate.getTime() + record.lifetimeMs);
    const shared = { key: long, namespace, createdDate, expiresDate };
    const ofAda = { ...shared, principal: 'ada', actionId: otherId, actionName: 'Two', source: undefined };
    const ofBob = { ...shared, principal: 'bob', actionId: id, actionName: 'One', source: long };
    expect(await operator.findKeys(long)).toEqual([ofAda, ofBob]);
    expect(await operator.findKeys(long, 'bob')).toEqual([ofBob]);
    expect(await operator.findKeys(long, principal.name)).toEqual([]);
    expect(await operator.findKeys(`${long}x`)).toEqual([]);
  });

  test.each<[string, (action: Parameters<DeliveryContext['act']>[0]) => Promise<unknown>]>([
    ['an action', (action) => context.act(action, { modelId: 'a', modelVersion: 2 })],
    [
      'an action of a group',
      async (action) => expect(await context.actTogether(action, {})).toEqual(['written', 'written']),
    ],
  ])('A key that %s takes over after its end has nothing left of the former one', async (_what, act) => {
    const { fixture, operator } = context;
    const owned = { namespace, principal: 'ada', key: 'k' };
    const former = { ...owned, fingerprint: 'f', result: '"former"', lifetimeMs: aSecond, source: 'former' };
    await context.act({ id: uuid(), name: 'Former', key: former }, { modelId: 'a', modelVersion: 1 });
    await fixture.pass(2 * aSecond);
    const id = uuid();
    const lifetimeMs = 60 * aSecond;
    await act({ id, name: 'Latter', key: { ...owned, fingerprint: 'l', result: '"latter"', lifetimeMs } });
    const createdDate = (await context.logged()).find(({ actionId }) => actionId === id)?.createdDate;
    const expiresDate = new Date((createdDate?.getTime() ?? 0) + lifetimeMs);
    const found = { createdDate, expiresDate, actionId: id, actionName: 'Latter', source: undefined };
    expect(await operator.findKeys('k')).toEqual([{ ...owned, ...found }]);
    const { keys } = fixture.databases.transactionManager(firstShard);
    expect(await keys.find(owned)).toMatchObject({ actionId: id, fingerprint: 'l', result: '"latter"' });
  });

  test('A key of more than 100 principals is found for 100 of them', async () => {
    const record = { namespace, fingerprint: 'f', result: undefined, lifetimeMs: 60_000, key: 'k' };
    const write = (index: number): Promise<readonly string[]> =>
      context.act({ key: { ...record, principal: `p-${String(index).padStart(3, '0')}` } });
    for (let index = 0; index < keysMax; index++) await write(index);
    expect(await context.operator.findKeys('k')).toHaveLength(keysMax);
    await write(keysMax);
    const found = await context.operator.findKeys('k');
    expect([found.length, found.at(-1)?.principal]).toEqual([keysMax, 'p-099']);
  });

  test('A text that no database can store matches nothing in the log, and no key', async () => {
    const { operator } = context;
    await context.act(
      { key: { namespace, principal: 'ada', fingerprint: 'f', result: undefined, lifetimeMs: 1, key: 'k' } },
      { modelId: 'a', modelVersion: 1 },
    );
    for (const text of unstorable) {
      for (const name of ['modelId', 'action', 'actionId', 'type', 'principal'])
        expect(await search({ [name]: text })).toEqual([]);
      expect(await operator.history(text, { limit: 1 })).toEqual({ items: [], next: undefined });
      expect(await operator.findAction(text)).toBeUndefined();
      expect([await operator.findKeys(text), await operator.findKeys('k', text)]).toEqual([[], []]);
    }
  });
}

function idsOfTracked(items: readonly TrackedEvent[]): readonly string[] {
  return idsOf(items.map(({ event }) => event));
}

function versionOfA(modelVersion: number): WrittenEvent {
  return { modelId: 'a', modelVersion };
}

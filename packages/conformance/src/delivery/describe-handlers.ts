import type { Cursor, HandlerRegistration, LeaseRenewal, SlotLease } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { at } from '../suite-context.js';
import { type DeliveryContext, idsOf } from './delivery-context.js';

const leaseMs = 60_000;

/** Registers tests of how processes share the slots. */
export function describeLeases(context: DeliveryContext): void {
  const renew = (
    processId: string,
    handlers: readonly string[] = ['mails'],
    shards: readonly string[] = [],
    givenBack: readonly string[] = [],
  ): Promise<LeaseRenewal> => context.store.leases.renew(processId, handlers, leaseMs, shards, givenBack);
  /** Renews, and gives back at once what is surplus. */
  const renewShare = async (
    processId: string,
    handlers: readonly string[] = ['mails'],
    shards: readonly string[] = [],
  ): Promise<LeaseRenewal> => {
    const renewal = await renew(processId, handlers, shards);
    const surplus = tokensOf(surplusOf(renewal));
    return surplus.length === 0 ? renewal : renew(processId, handlers, shards, surplus);
  };
  /** The maximum number of slots of each process when this many processes share them. */
  const share = (processCount: number): number => Math.ceil(context.store.slotCount / processCount);
  /** How many slots of a handler a process with these shards gets. */
  const countOf = async (processId: string, handler: string, ...shards: string[]): Promise<number> =>
    (await renewShare(processId, [handler], shards)).leases.length;
  const withHandlers = (): Promise<void> => context.register('mails', 'books');

  test('A single process has all slots of each of its handlers', async () => {
    await withHandlers();
    const renewal = await renew('one', ['mails', 'books']);
    expect(placesOf(renewal.leases)).toEqual(placesIn(['mails', 'books'], context.slots));
    expect(renewal.leases.some(({ abandoned }) => abandoned)).toBe(false);
    expect(renewal.alone).toBe(true);
    expect(await renew('one', ['mails', 'books'])).toEqual(renewal);
  });

  test('Slots are shared fairly when further processes join, and taken over when they leave', async () => {
    await withHandlers();
    await renew('one');
    expect(await renew('two')).toMatchObject({ leases: [], alone: false });
    expect((await renewShare('one')).leases).toHaveLength(share(2));
    expect((await renew('two')).leases).toHaveLength(context.store.slotCount - share(2));
    const holders = (await context.store.leases.list()).filter(({ handler }) => handler === 'mails');
    expect(holders.toSorted((one, other) => one.slot - other.slot)).toMatchObject(
      context.slots.map((slot) => ({ slot, processId: slot < share(2) ? 'one' : 'two' })),
    );

    await context.store.leases.release('one');
    const { leases } = await renew('two');
    expect(leases).toHaveLength(context.store.slotCount);
    expect(leases.some(({ abandoned }) => abandoned)).toBe(false);
  });

  test('Slots beyond the share stay with their process until it gives them back, and are its own again if the share grows', async () => {
    await withHandlers();
    const before = (await renew('one')).leases;
    await renew('two');
    const renewal = await renew('one');
    expect(tokensOf(renewal.leases)).toEqual(tokensOf(before));
    expect(placesOf(surplusOf(renewal))).toEqual(placesIn(['mails'], context.slots.slice(share(2))));
    expect((await renew('two')).leases).toEqual([]);

    const [first, second, ...others] = tokensOf(surplusOf(renewal));
    const given = [first ?? '', context.lostToken];
    expect(placesOf(surplusOf(await renew('one', ['mails'], [], given)))).toHaveLength(1 + others.length);
    const taken = await renew('two');
    expect(placesOf(taken.leases)).toEqual(placesIn(['mails'], [share(2)]));
    expect(taken.leases.some(({ abandoned, surplus }) => abandoned || surplus)).toBe(false);
    // A process gives back only what is its own.
    await renew('two', ['mails'], [], [second ?? '']);
    expect(tokensOf((await renew('one')).leases)).toContain(second);

    await context.store.leases.release('two');
    const whole = await renew('one', ['mails'], [], [second ?? '']);
    expect(surplusOf(whole)).toEqual([]);
    expect(placesOf(whole.leases)).toEqual(placesOf(before));
    expect(tokensOf(whole.leases)).not.toContain(second);
  });

  test('A process learns when the next lease of another process ends, even if it gets no slots itself', async () => {
    await withHandlers();
    await renew('one');
    const { leases, othersEndInMs } = await context.store.leases.renew('two', ['mails'], 2 * leaseMs);
    expect(leases).toEqual([]);
    expect(othersEndInMs).toBeGreaterThan(leaseMs / 2);
    expect(othersEndInMs).toBeLessThanOrEqual(leaseMs);
    expect((await renew('three')).othersEndInMs).toBeLessThanOrEqual(leaseMs);
    await context.store.leases.release('one');
    await context.store.leases.release('three');
    expect((await renew('two')).othersEndInMs).toBeUndefined();
  });

  test('Slots are shared only among the processes that have the handler', async () => {
    await withHandlers();
    const all = [
      ['mailer', ['mails']],
      ['bookkeeper', ['books']],
      ['both', ['mails', 'books']],
    ] as const;
    const held = new Map<string, readonly string[]>();
    for (let round = 0; round < 3; round++)
      for (const [processId, handlers] of all)
        held.set(processId, placesOf((await renewShare(processId, handlers)).leases));
    const [first, rest] = [context.slots.slice(0, share(2)), context.slots.slice(share(2))];
    expect(held.get('mailer')).toEqual(placesIn(['mails'], first));
    expect(held.get('bookkeeper')).toEqual(placesIn(['books'], first));
    expect(held.get('both')).toEqual(placesIn(['mails', 'books'], rest));
  });

  test('A process gives back the slots of a handler that it no longer has', async () => {
    await withHandlers();
    await renew('one', ['mails', 'books']);
    const { leases } = await renew('one', ['books']);
    expect(placesOf(leases)).toEqual(placesIn(['books'], context.slots));
    const taken = (await renew('two')).leases;
    expect(placesOf(taken)).toEqual(placesIn(['mails'], context.slots));
    expect(taken.some(({ abandoned }) => abandoned)).toBe(false);
  });

  test('Slots go to the processes that know the most shards, and are shared by those that know equally many', async () => {
    await withHandlers();
    const { slotCount } = context.store;
    expect(await countOf('part', 'mails', 'global')).toBe(slotCount);
    expect(await countOf('full', 'mails', 'global', 'mexico')).toBe(0);
    expect(await countOf('part', 'mails', 'global')).toBe(0);
    expect(await countOf('full', 'mails', 'mexico', 'global')).toBe(slotCount);
    await countOf('other', 'mails', 'brazil');
    await countOf('twin', 'mails', 'global', 'mexico', 'mexico');
    await countOf('full', 'mails', 'mexico', 'global');
    expect(await countOf('part', 'mails', 'global')).toBe(0);
    expect(await countOf('other', 'mails', 'brazil')).toBe(share(3));
    expect(await countOf('twin', 'mails', 'global', 'mexico')).toBe(slotCount - 2 * share(3));
    expect(await countOf('full', 'mails', 'global', 'mexico')).toBe(share(3));
    for (const id of ['full', 'twin', 'other']) await context.store.leases.release(id);
    expect(await countOf('part', 'mails', 'global')).toBe(slotCount);
  });

  test('A process gets slots only for shards that it knows now, and only for its own handlers', async () => {
    await withHandlers();
    const { slotCount } = context.store;
    expect(await countOf('one', 'mails', 'global')).toBe(slotCount);
    expect(await countOf('bookkeeper', 'books', 'global', 'mexico')).toBe(slotCount);
    expect(await countOf('one', 'mails', 'global')).toBe(slotCount);
    expect(await countOf('two', 'mails', 'global', 'mexico')).toBe(0);
    expect(await countOf('one', 'mails', 'global', 'mexico')).toBe(share(2));
    expect(await countOf('two', 'mails', 'global')).toBe(0);
    expect(await countOf('one', 'mails', 'global', 'mexico')).toBe(slotCount);
  });

  test('The slots of a process that died are taken over as abandoned, once its lease is over', async () => {
    await withHandlers();
    const before = (await renew('one')).leases;
    await context.fixture.pass(leaseMs - 1);
    expect((await context.store.leases.renew('two', ['mails'], 10 * leaseMs)).leases).toEqual([]);
    await context.fixture.pass(2);
    const after = (await renew('two')).leases;
    expect(placesOf(after)).toEqual(placesOf(before));
    expect(after.every(({ abandoned }) => abandoned)).toBe(true);
    const tokens = new Set(before.map(({ token }) => token));
    expect(after.some(({ token }) => tokens.has(token))).toBe(false);
    // The slots are reported as abandoned again, because the first answer may have been lost.
    expect((await renew('two')).leases).toEqual(after);
  });

  test('A slot stays abandoned until a holder has recovered it', async () => {
    await withHandlers();
    await renew('one');
    await context.fixture.pass(leaseMs + 1);
    const [first, ...others] = (await renew('two')).leases;
    await context.store.leases.recovered([at([first], 0)?.token ?? '', context.lostToken]);
    // Another process takes half of the slots, and the first one is late, and gives the rest back.
    for (let round = 0; round < 2; round++) for (const id of ['two', 'three']) await renewShare(id);
    await context.fixture.pass(leaseMs + 1);
    await renew('two');
    await context.store.leases.release('two');
    const all = (await renew('three')).leases;
    expect(all.filter(({ abandoned }) => !abandoned).map(({ slot }) => slot)).toEqual([first?.slot]);
    expect(all).toHaveLength(others.length + 1);
  });

  test('Slots do not count as abandoned when the database was away for longer than a lease', async () => {
    await withHandlers();
    for (let round = 0; round < 2; round++) for (const id of ['one', 'two']) await renewShare(id);
    await context.fixture.pass(2 * leaseMs);
    // Both are alive, and neither could renew: the one that comes back first must not treat the other as dead.
    const held = [await renew('one'), await renew('two')].map(({ leases }) => leases);
    expect(placesOf(held.flat())).toEqual(placesIn(['mails'], context.slots));
    expect(held[0]).toHaveLength(share(2));
    expect(held.flat().some(({ abandoned }) => abandoned)).toBe(false);
  });

  test('No slot is held by two processes when many arrive at once', async () => {
    await withHandlers();
    const names = Array.from({ length: 10 }, (_unused, index) => `process-${index}`);
    const renewAll = (): Promise<readonly LeaseRenewal[]> =>
      Promise.all(names.map((name) => renewShare(name)));
    await renewAll();
    await renewAll();
    const held = (await renewAll()).flatMap(({ leases }) => leases);
    expect(placesOf(held)).toEqual(placesIn(['mails'], context.slots));
  });
}

/** Registers tests of how a database recognises handlers by their names, and forgets them. */
export function describeHandlerNames(context: DeliveryContext): void {
  test('A handler is the same under all its names, whichever version of the code comes first or comes back', async () => {
    const { cursors } = context.store;
    const older = { name: 'notify', aliases: [], startFrom: 'beginning' } as const;
    const newer = { name: 'tell', aliases: ['inform', 'notify'], startFrom: 'now' } as const;
    for (const handler of [older, newer, older, { ...newer, aliases: [] }])
      expect(await cursors.register(handler)).toBe('notify');
    expect(await cursors.find('inform')).toBe('notify');
    for (const none of ['nobody', 'a\u0000b', '\ud83d']) expect(await cursors.find(none)).toBeUndefined();
    const [known, ...others] = await cursors.known();
    expect(known).toMatchObject({ handler: 'notify', paused: false });
    expect(known?.names.toSorted()).toEqual(['inform', 'notify', 'tell']);
    expect(others).toEqual([]);
  });

  test('A handler whose names belong to two handlers is refused, and nothing is registered', async () => {
    await context.register('mails', 'books');
    const both = { name: 'both', aliases: ['mails', 'books'], startFrom: 'now' } as const;
    await expect(context.store.cursors.register(both)).rejects.toMatchObject({
      code: 'handler-names',
      handlers: ['books', 'mails'],
    });
    expect(await context.store.cursors.find('both')).toBeUndefined();
  });

  test('A handler is removed with its cursors and names, but not while a process has it', async () => {
    const { cursors, leases } = context.store;
    await context.register('mails', 'books');
    await leases.renew('one', ['mails', 'books'], leaseMs);
    const retired = (): Promise<void> => cursors.retire('mails', { discardBlocked: false });
    await expect(retired()).rejects.toMatchObject({ code: 'handler-in-use', handler: 'mails' });
    await leases.renew('one', ['books'], leaseMs);
    await retired();
    expect(await cursors.find('mails')).toBeUndefined();
    const loaded = await cursors.load(context.slots);
    expect(loaded.map(({ handler }) => handler)).toEqual(context.slots.map(() => 'books'));
  });

  test('A handler is removed only one lease time after its lease has ended, because its process may be late', async () => {
    await context.register('mails');
    await context.store.leases.renew('one', ['mails'], leaseMs);
    const retired = (): Promise<void> => context.store.cursors.retire('mails', { discardBlocked: false });
    await context.fixture.pass(1.9 * leaseMs);
    await expect(retired()).rejects.toMatchObject({
      code: 'handler-in-use',
      message: expect.stringContaining('process one'),
    });
    await context.fixture.pass(0.2 * leaseMs);
    await retired();
    expect(await context.store.cursors.find('mails')).toBeUndefined();
  });

  test('A handler with blocked models is removed only together with them', async () => {
    const [event] = await context.holdWith('a', 1);
    await context.fail({ event });
    await context.store.leases.release('one');
    const retired = (discardBlocked: boolean): Promise<void> =>
      context.store.cursors.retire('notify', { discardBlocked });
    await expect(retired(false)).rejects.toMatchObject({ code: 'handler-in-use', handler: 'notify' });
    await retired(true);
    expect((await context.store.deadLetters.find({}, { limit: 1 })).items).toEqual([]);
  });
}

/** Registers tests of the positions of handlers. */
export function describeCursors(context: DeliveryContext): void {
  const cursorsOf = async (name: string): Promise<readonly Cursor[]> =>
    (await context.store.cursors.load(context.slots))
      .filter(({ handler }) => handler === name)
      .map(({ cursor }) => cursor);

  test('A new handler starts where it asks to, and does not start again', async () => {
    const earlier = await context.write('a', 1);
    const late = { name: 'late', aliases: [], startFrom: 'now' } as const;
    const early = { ...late, name: 'early', startFrom: 'beginning' } as const;
    const register = (handler: HandlerRegistration): Promise<string> =>
      context.store.cursors.register(handler);
    await Promise.all(Array.from({ length: 5 }, () => [register(early), register(late)]).flat());
    const next = await context.write('b', 1);
    await Promise.all([register(early), register(late)]);
    for (const [name, expected] of [
      ['early', [...earlier, ...next]],
      ['late', next],
    ] as const) {
      const cursors = await cursorsOf(name);
      expect(cursors).toHaveLength(context.store.slotCount);
      for (const cursor of cursors) expect(idsOf((await context.readOn(cursor)).events)).toEqual(expected);
    }
  });

  test('A new handler with a start time starts before the events created since then', async () => {
    await context.write('a', 1);
    await context.fixture.pass(leaseMs);
    const since = await context.write('b', 1);
    const { createdDate: time } = at(await context.logged(), 1);
    await context.fixture.pass(leaseMs);
    const later = await context.write('c', 1);
    await context.store.cursors.register({ name: 'since', aliases: [], startFrom: { time } });
    const { events } = await context.readOn(at(await cursorsOf('since'), 0));
    expect(idsOf(events)).toEqual(expect.arrayContaining([...since, ...later]));
  });

  test('A cursor is saved only under the lease of its handler and slot', async () => {
    const leases = await context.holdAll();
    await context.write('a', 1);
    const { cursor } = await context.readOn(await context.beginning());
    const ofMine = leases.filter(({ handler }) => handler === 'notify');
    const [held, lost] = [at(ofMine, 0), at(ofMine, 1)];
    const before = await context.store.cursors.load(context.slots);
    const moves = [
      { ...held, cursor },
      { ...lost, token: context.lostToken, cursor },
      { ...held, handler: 'elsewhere', cursor },
    ];
    expect(await context.store.cursors.save(moves)).toContain(context.lostToken);
    expect(await context.store.cursors.save([{ ...held, cursor }])).toEqual([]);
    const moved = (await context.store.cursors.load(context.slots)).filter(
      (after) =>
        before.find(({ handler, slot }) => handler === after.handler && slot === after.slot)?.cursor !==
        after.cursor,
    );
    expect(moved).toMatchObject([{ handler: 'notify', slot: held.slot, cursor }]);
  });

  test('A cursor is not moved back by a save that arrives after a later one', async () => {
    const lease = at(await context.holdAll(), 0);
    const places = [await context.beginning()];
    for (const version of [1, 2, 3]) {
      await context.write('a', version);
      places.push((await context.readOn(at(places, version - 1))).cursor);
    }
    const standing = [];
    for (const place of [2, 1, 3, 2]) {
      expect(await context.store.cursors.save([{ ...lease, cursor: at(places, place) }])).toEqual([]);
      const loaded = await context.store.cursors.load([lease.slot]);
      standing.push(loaded.find(({ handler }) => handler === lease.handler)?.cursor);
    }
    expect(standing).toEqual([2, 2, 3, 3].map((place) => places[place]));
  });

  test('Operators see how far a handler is behind', async () => {
    const { store } = context;
    const leases = await context.holdAll();
    await context.write('a', 1);
    await context.fixture.pass(leaseMs);
    await context.write('a', 2, 3);
    const events = await context.logged();
    const lag = async (): Promise<unknown> =>
      (await store.cursors.lag()).toSorted((one, other) => (one.handler < other.handler ? -1 : 1));
    expect(await lag()).toMatchObject([
      { handler: 'elsewhere', pendingCount: 3, oldestPendingMs: leaseMs },
      { handler: 'notify', pendingCount: 3, blockedCount: 0, deadCount: 0 },
    ]);

    const { cursor } = await context.readOn(await context.beginning());
    const ofMine = leases.filter(({ handler }) => handler === 'notify');
    await store.cursors.save(ofMine.map((lease) => ({ ...lease, cursor })));
    await context.fail({ event: at(events, 1), dead: true, error: 'poison' });
    await store.cursors.setPaused('notify', true);
    expect(await lag()).toMatchObject([
      { handler: 'elsewhere', paused: false, pendingCount: 3, blockedCount: 0, deadCount: 0 },
      { handler: 'notify', paused: true, pendingCount: 0, oldestPendingMs: 0, blockedCount: 2, deadCount: 1 },
    ]);
    const loaded = await store.cursors.load([0]);
    expect(new Map(loaded.map(({ handler, paused }) => [handler, paused]))).toEqual(
      new Map([
        ['elsewhere', false],
        ['notify', true],
      ]),
    );
  });
}

function placesOf(leases: readonly SlotLease[]): readonly string[] {
  return leases.map(({ handler, slot }) => `${handler} ${slot}`).toSorted();
}

function tokensOf(leases: readonly SlotLease[]): readonly string[] {
  return leases.map(({ token }) => token);
}

function surplusOf({ leases }: LeaseRenewal): readonly SlotLease[] {
  return leases.filter(({ surplus }) => surplus);
}

function placesIn(handlers: readonly string[], slots: readonly number[]): readonly string[] {
  return handlers.flatMap((handler) => slots.map((slot) => `${handler} ${slot}`)).toSorted();
}

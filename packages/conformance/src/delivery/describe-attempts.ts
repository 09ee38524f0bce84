import type { BlockedAttempt, BlockedFilter, BlockedHead, DuePlace } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { at } from '../suite-context.js';
import { type DeliveryContext, alone, contentOf, idsOf, never, step } from './delivery-context.js';

/** Registers tests of how attempts at blocked events are counted. */
export function describeAttempts(context: DeliveryContext): void {
  /** All slots of `notify`, with the longest time for which an event there may wait. */
  const placesWaiting = (waitMaxMs: number): readonly DuePlace[] =>
    context.places().map((place) => ({ ...place, waitMaxMs }));

  test('An attempt is counted before it is made, and its event is removed when it succeeds', async () => {
    const events = await context.holdWith('a', 1, 2);
    await context.block(...events.map((event) => ({ event })));
    for (const event of events) {
      const heads = await context.heads();
      expect(heads).toHaveLength(1);
      const head = at(heads, 0);
      expect(head).toMatchObject({ handler: 'notify', attempts: 0, suspect: false });
      expect(contentOf(head.event)).toEqual(contentOf(event));
      expect(await context.store.blocked.beginAttempt(head, alone('first'))).toBe(true);
      expect((await context.rows())[0]).toMatchObject({ attempts: 1 });
      expect(await context.store.blocked.endAttempt(head, alone('first'), { kind: 'done' })).toBe(true);
    }
    expect(await context.store.blocked.models(context.places(), { limit: 10 })).toEqual([]);
    expect(await context.store.blocked.nextDueMs(context.places())).toBeUndefined();
  });

  test('The end of an attempt has no further effect when it is reported twice', async () => {
    const events = await context.holdWith('a', 1, 2);
    await context.block(...events.map((event) => ({ event })));
    const head = await context.head();
    expect(await context.store.blocked.endAttempt(head, alone('first'), { kind: 'done' })).toBe(true);
    expect(await context.store.blocked.endAttempt(head, alone('first'), { kind: 'done' })).toBe(true);
    expect(await context.heads()).toMatchObject([{ event: { id: events[1].id } }]);
  });

  test('An event stays as an operator left it when the end of an attempt is reported again after a replay', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    const head = await context.head();
    await context.store.blocked.beginAttempt(head, alone('first'));
    const told = [
      { attempt: alone('first'), head: head, outcome: { kind: 'dead', error: 'its answer is lost' } },
      { attempt: undefined, head: { ...head, attempts: 1 }, outcome: { kind: 'dead', error: 'given up' } },
    ] as const;
    for (const { attempt, head: known, outcome } of told) {
      expect(await context.store.blocked.endAttempt(known, attempt, outcome)).toBe(true);
      expect((await context.store.deadLetters.replay({}, step)).count).toBe(1);
      expect(await context.store.blocked.endAttempt(known, attempt, outcome)).toBe(true);
      expect(await context.heads()).toMatchObject([{ attempts: 0 }]);
      await context.store.blocked.beginAttempt(head, alone('another'));
    }
  });

  test('A second report of the end of an attempt does not change how long its event waits', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    const head = await context.head();
    await context.store.blocked.beginAttempt(head, alone('first'));
    for (const retryAfterMs of [0, never])
      await context.store.blocked.endAttempt(head, alone('first'), {
        kind: 'retry',
        error: 'boom',
        retryAfterMs,
      });
    const again = await context.head();
    for (const retryAfterMs of [60_000, never])
      await context.store.blocked.endAttempt(again, undefined, {
        kind: 'postponed',
        error: 'slow',
        retryAfterMs,
      });
    expect(await context.store.blocked.nextDueMs(context.places())).toBeLessThanOrEqual(60_000);
    expect((await context.rows())[0]).toMatchObject({ attempts: 1 });
  });

  test('An event that would wait for longer than the longest wait is due, because the clock of the database has gone back', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0], error: 'boom', attempts: 1, retryAfterMs: 3_600_000 });
    expect(await context.heads()).toEqual([]);
    expect(await context.store.blocked.dueHeads(placesWaiting(3_600_000), 10)).toEqual([]);
    const head = at(await context.store.blocked.dueHeads(placesWaiting(300_000), 10), 0);
    await context.store.blocked.beginAttempt(head, alone('first'));
    await context.store.blocked.endAttempt(head, alone('first'), {
      kind: 'retry',
      error: 'boom',
      retryAfterMs: 60_000,
    });
    expect(await context.store.blocked.dueHeads(placesWaiting(300_000), 10)).toEqual([]);
    expect(await context.store.blocked.nextDueMs(context.places())).toBeLessThanOrEqual(60_000);
  });

  test('An attempt is counted once and taken back once, however often either is reported', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    const head = await context.head();
    const standing = async (): Promise<unknown> => {
      const row = await context.row();
      return row && [row.attempts, row.uncounted, row.dead];
    };
    for (const [id, attempts] of [
      ['first', 0],
      ['first', 0],
      ['second', 1],
      ['first', 0],
    ] as const)
      expect(await context.store.blocked.beginAttempt({ ...head, attempts }, alone(id))).toBe(true);
    expect(await standing()).toEqual([2, 0, false]);
    // A process that gives an attempt back may have lost the lease by then.
    const lost = { ...head, token: context.lostToken };
    for (const id of ['first', 'first', 'never begun'])
      await context.store.blocked.giveBackAttempt(lost, alone(id));
    expect(await standing()).toEqual([1, 0, false]);
    const outage = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    for (let times = 0; times < 2; times++)
      expect(await context.store.blocked.endAttempt(head, alone('second'), outage)).toBe(true);
    expect(await standing()).toEqual([0, 1, false]);

    await context.store.blocked.beginAttempt({ ...head, uncounted: 1 }, alone('third'));
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    for (let times = 0; times < 2; times++)
      await context.store.blocked.endAttempt(head, alone('third'), failure);
    await context.store.blocked.giveBackAttempt(head, alone('third'));
    expect(await standing()).toEqual([1, 1, false]);
    const next = await context.head();
    expect(next).toMatchObject({ attempts: 1, uncounted: 1 });

    await context.store.blocked.beginAttempt(next, alone('fourth'));
    await context.store.blocked.endAttempt(head, alone('fourth'), { kind: 'dead', error: 'no' });
    await context.store.deadLetters.replay({}, step);
    await context.store.blocked.giveBackAttempt(head, alone('fourth'));
    expect(await standing()).toEqual([0, 0, false]);
  });

  test('No attempt begins for an event whose state has changed since its head was read', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    const standing = (): Promise<BlockedHead> => context.head();
    const outage = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    for (const outcome of [outage, failure]) {
      const head = await standing();
      expect(await context.store.blocked.beginAttempt(head, alone(outcome.kind))).toBe(true);
      expect(await context.store.blocked.endAttempt(head, alone(outcome.kind), outcome)).toBe(true);
      expect(await context.store.blocked.beginAttempt(head, alone(outcome.kind))).toBe(false);
    }
    expect(await standing()).toMatchObject({ attempts: 1, uncounted: 1, openCount: 0 });
  });

  test('No attempt begins for a dead letter, and its last attempt cannot end a second time', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    const head = await context.head();
    await context.store.blocked.endAttempt(head, undefined, { kind: 'dead', error: 'poison' });
    expect(await context.store.blocked.beginAttempt(head, alone('late'))).toBe(false);
    await context.store.blocked.endAttempt(head, undefined, {
      kind: 'retry',
      error: 'late',
      retryAfterMs: 0,
    });
    expect(await context.rows()).toMatchObject([{ dead: true, error: 'poison', attempts: 0 }]);
  });

  test('The step that continues a lone attempt in parallel with others also takes its count back, while the attempt is open', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    const head = await context.head();
    const standing = async (): Promise<unknown> => {
      const [row] = await context.heads();
      return row && [row.attempts, row.openCount];
    };
    const goOn = (): Promise<boolean> =>
      context.store.blocked.beginAttempt(head, beside('second'), alone('first'));
    await context.store.blocked.beginAttempt(head, alone('first'));
    expect(await standing()).toEqual([1, 1]);
    for (let times = 0; times < 2; times++) {
      expect(await goOn()).toBe(true);
      expect(await standing()).toEqual([0, 1]);
    }
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    await context.store.blocked.endAttempt(head, beside('second'), failure);
    expect(await goOn()).toBe(false);
    expect(await standing()).toEqual([1, 0]);
  });

  test('An attempt in parallel with others is counted only when it has failed by itself', async () => {
    const events = await context.holdWith('a', 1);
    await context.block({ event: events[0] });
    const head = await context.head();
    const standing = async (): Promise<unknown> => {
      const [row] = await context.heads();
      return row && [row.attempts, row.openCount, row.uncounted];
    };
    for (const id of ['first', 'first', 'second'])
      expect(await context.store.blocked.beginAttempt(head, beside(id))).toBe(true);
    expect(await standing()).toEqual([0, 2, 0]);
    for (let times = 0; times < 2; times++)
      await context.store.blocked.giveBackAttempt(head, beside('first'));
    expect(await standing()).toEqual([0, 1, 0]);
    // An attempt that ends shows that the event does not kill its process, so earlier attempts that did not end are forgotten.
    const outage = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    await context.store.blocked.beginAttempt(head, beside('third'));
    for (let times = 0; times < 2; times++)
      await context.store.blocked.endAttempt(head, beside('third'), outage);
    await context.store.blocked.giveBackAttempt(head, beside('second'));
    expect(await standing()).toEqual([0, 0, 1]);
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    await context.store.blocked.beginAttempt({ ...head, uncounted: 1 }, beside('fourth'));
    for (let times = 0; times < 2; times++)
      await context.store.blocked.endAttempt(head, beside('fourth'), failure);
    expect(await standing()).toEqual([1, 0, 1]);
    await context.store.blocked.beginAttempt({ ...head, attempts: 1, uncounted: 1 }, beside('fifth'));
    await context.store.blocked.endAttempt(head, beside('fifth'), { kind: 'dead', error: 'no' });
    expect(await context.rows()).toMatchObject([{ attempts: 2, dead: true }]);
  });
}

/** Registers tests of what operators see of blocked events, and do with dead letters. */
export function describeDeadLetters(context: DeliveryContext): void {
  test('Blocked events are found in pages, oldest first', async () => {
    const events = await context.holdWith('a', 1, 2, 3, 4, 5);
    for (const event of events) {
      await context.block({ event });
      await context.fixture.pass(1);
    }
    const found: string[] = [];
    let after: string | undefined;
    do {
      const place = { limit: 2, ...(after !== undefined && { after }) };
      const page = await context.store.deadLetters.find({ modelId: 'a' }, place);
      found.push(...page.items.map(({ event }) => event.id));
      after = page.next;
    } while (after !== undefined);
    expect(found).toEqual(idsOf(events));
    await expect(context.store.deadLetters.find({}, { limit: 1, after: 'x' })).rejects.toMatchObject({
      code: 'invalid-cursor',
    });
    await expect(context.store.deadLetters.find({}, { limit: Number.NaN })).rejects.toMatchObject({
      code: 'invariant-violation',
    });
  });

  test('Blocked events are found, replayed and skipped by every field of a filter', async () => {
    await context.holdWith('a', 1);
    await context.writeAtOnce({ modelId: 'b', modelVersion: 1, type: 'ThingMadeEvent' });
    const events = await context.logged();
    const [a, b] = [at(events, 0), at(events, 1)];
    await context.block(
      { event: a, dead: true },
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
      const events = await context.holdWith('a', 1, 2, 3, 4, 5);
      await context.block(...events.map((event) => ({ event, dead: true })));
      const counts: number[] = [];
      let after: string | undefined;
      do {
        const place = { limit: 2, ...(after !== undefined && { after }) };
        const done = await context.store.deadLetters[change]({ handler: 'notify' }, place);
        counts.push(done.count);
        after = done.next;
        // An event that fails again meanwhile is not replayed a second time.
        const [head] = await context.heads(1);
        if (head !== undefined)
          await context.store.blocked.endAttempt(head, undefined, { kind: 'dead', error: 'again' });
      } while (after !== undefined);
      expect(counts).toEqual([2, 2, 1]);
    }
  });

  test('A dead letter is replayed once, even if it fails again between two steps', async () => {
    await context.holdWith('a', 1);
    await context.write('b', 1);
    for (const event of await context.logged()) {
      await context.block({ event, dead: true });
      await context.fixture.pass(1);
    }
    const first = await context.store.deadLetters.replay({}, { limit: 1 });
    const head = await context.head();
    await context.store.blocked.endAttempt(head, undefined, { kind: 'dead', error: 'again' });
    const second = await context.store.deadLetters.replay({}, { limit: 1, after: first.next ?? '' });
    expect([first.count, second.count]).toEqual([1, 1]);
    expect(await context.rows({ dead: false })).toMatchObject([{ event: { modelId: 'b' } }]);
  });

  test('A dead letter is due from the time of its replay, however long ago it was blocked', async () => {
    await context.holdWith('a', 1);
    await context.write('b', 1);
    const events = await context.logged();
    await context.block({ event: at(events, 0), dead: true });
    await context.fixture.pass(never);
    await context.block({ event: at(events, 1), attempts: 1, retryAfterMs: 0 });
    await context.fixture.pass(1);
    await context.store.deadLetters.replay({}, step);
    const heads = await context.heads();
    expect(heads.map(({ event }) => event.modelId)).toEqual(['b', 'a']);
    const row = await context.row({ modelId: 'a' });
    expect(row.nextAttemptDate).toEqual(new Date(row.blockedDate.getTime() + never + 1));
  });

  test.each(['a\u0000b', '\ud83d'])(
    'A filter with a text that no row can have matches nothing: %j',
    async (text) => {
      const [event] = await context.holdWith('a', 1);
      await context.block({ event: event, dead: true });
      for (const filter of [{ handler: text }, { modelId: text }, { eventType: text }, { eventId: text }]) {
        expect(await context.rows(filter)).toEqual([]);
        expect((await context.store.deadLetters.skip(filter, step)).count).toBe(0);
      }
    },
  );
}

/** An attempt in parallel with others. */
function beside(id: string): BlockedAttempt {
  return { id, counted: false };
}

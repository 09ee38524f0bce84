import type { DuePlace, BlockedAttempt } from '@framework/core/adapter';
import { describe, expect, it } from 'vitest';
import { alone, asJson, everywhere, never, nobody, step, withEvents } from './fixtures/blocked-events.js';

describe('blocked events', () => {
  it('are counted before the attempt, and gone when it succeeds', async () => {
    const { store, events, block } = await withEvents('a', 1, 2);
    await block(...events.map((event) => ({ event })));
    for (const event of events) {
      const [head, another] = await store.blocked.dueHeads(everywhere, 10);
      expect(head).toMatchObject({ handler: 'notify', attempts: 0, suspect: false });
      expect(asJson(head!.event)).toEqual(asJson(event));
      expect(another).toBeUndefined();
      expect(await store.blocked.beginAttempt(head!, alone('first'))).toBe(true);
      expect((await store.deadLetters.find({}, { limit: 1 })).items[0]).toMatchObject({ attempts: 1 });
      expect(await store.blocked.endAttempt(head!, alone('first'), { kind: 'done' })).toBe(true);
    }
    expect(await store.blocked.models(everywhere, { limit: 10 })).toEqual([]);
    expect(await store.blocked.nextDueMs(everywhere)).toBeUndefined();
  });

  it('stay as they are when the end of an attempt is reported twice', async () => {
    const { store, events, block } = await withEvents('a', 1, 2);
    await block(...events.map((event) => ({ event })));
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    expect(await store.blocked.endAttempt(head!, alone('first'), { kind: 'done' })).toBe(true);
    expect(await store.blocked.endAttempt(head!, alone('first'), { kind: 'done' })).toBe(true);
    expect(await store.blocked.dueHeads(everywhere, 10)).toMatchObject([{ event: { id: events[1]!.id } }]);
  });

  it('are as an operator left them when the end of an attempt is reported again after a replay', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    await store.blocked.beginAttempt(head!, alone('first'));
    const told = [
      { attempt: alone('first'), head: head!, outcome: { kind: 'dead', error: 'its answer is lost' } },
      { attempt: undefined, head: { ...head!, attempts: 1 }, outcome: { kind: 'dead', error: 'given up' } },
    ] as const;
    for (const { attempt, head: known, outcome } of told) {
      expect(await store.blocked.endAttempt(known, attempt, outcome)).toBe(true);
      expect((await store.deadLetters.replay({}, step)).count).toBe(1);
      expect(await store.blocked.endAttempt(known, attempt, outcome)).toBe(true);
      expect(await store.blocked.dueHeads(everywhere, 10)).toMatchObject([{ attempts: 0 }]);
      await store.blocked.beginAttempt(head!, alone('another'));
    }
  });

  it('wait as long as was said first when the end of an attempt is reported again', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    await store.blocked.beginAttempt(head!, alone('first'));
    for (const retryAfterMs of [0, never])
      await store.blocked.endAttempt(head!, alone('first'), { kind: 'retry', error: 'boom', retryAfterMs });
    const [again] = await store.blocked.dueHeads(everywhere, 10);
    for (const retryAfterMs of [60_000, never])
      await store.blocked.endAttempt(again!, undefined, { kind: 'postponed', error: 'slow', retryAfterMs });
    expect(await store.blocked.nextDueMs(everywhere)).toBeLessThanOrEqual(60_000);
    expect((await store.deadLetters.find({}, { limit: 1 })).items[0]).toMatchObject({ attempts: 1 });
  });

  it('that would wait for longer than anything does are due, because the clock of the database has gone back', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]!, error: 'boom', attempts: 1, retryAfterMs: 3_600_000 });
    expect(await store.blocked.dueHeads(everywhere, 10)).toEqual([]);
    expect(await store.blocked.dueHeads(placesWaiting(3_600_000), 10)).toEqual([]);
    const [head] = await store.blocked.dueHeads(placesWaiting(300_000), 10);
    await store.blocked.beginAttempt(head!, alone('first'));
    await store.blocked.endAttempt(head!, alone('first'), {
      kind: 'retry',
      error: 'boom',
      retryAfterMs: 60_000,
    });
    expect(await store.blocked.dueHeads(placesWaiting(300_000), 10)).toEqual([]);
    expect(await store.blocked.nextDueMs(everywhere)).toBeLessThanOrEqual(60_000);
  });

  it('have an attempt counted once, and taken back once, however often that is reported', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    const standing = async (): Promise<unknown> => {
      const [row] = (await store.deadLetters.find({}, { limit: 1 })).items;
      return row && [row.attempts, row.uncounted, row.dead];
    };
    for (const [id, attempts] of [
      ['first', 0],
      ['first', 0],
      ['second', 1],
      ['first', 0],
    ] as const)
      expect(await store.blocked.beginAttempt({ ...head!, attempts }, alone(id))).toBe(true);
    expect(await standing()).toEqual([2, 0, false]);
    // Whoever gives an attempt up may have lost the lease by then.
    const lost = { ...head!, token: nobody };
    for (const id of ['first', 'first', 'never begun']) await store.blocked.giveBackAttempt(lost, alone(id));
    expect(await standing()).toEqual([1, 0, false]);
    const outage = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    for (let times = 0; times < 2; times++)
      expect(await store.blocked.endAttempt(head!, alone('second'), outage)).toBe(true);
    expect(await standing()).toEqual([0, 1, false]);

    await store.blocked.beginAttempt({ ...head!, uncounted: 1 }, alone('third'));
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    for (let times = 0; times < 2; times++) await store.blocked.endAttempt(head!, alone('third'), failure);
    await store.blocked.giveBackAttempt(head!, alone('third'));
    expect(await standing()).toEqual([1, 1, false]);
    const [next] = await store.blocked.dueHeads(everywhere, 10);
    expect(next).toMatchObject({ attempts: 1, uncounted: 1 });

    await store.blocked.beginAttempt(next!, alone('fourth'));
    await store.blocked.endAttempt(head!, alone('fourth'), { kind: 'dead', error: 'no' });
    await store.deadLetters.replay({}, step);
    await store.blocked.giveBackAttempt(head!, alone('fourth'));
    expect(await standing()).toEqual([0, 0, false]);
  });

  it('have no attempt begun by a statement that comes when they do not stand any more as it says', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    const standing = async () => (await store.blocked.dueHeads(everywhere, 10))[0]!;
    const outage = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    for (const outcome of [outage, failure]) {
      const head = await standing();
      expect(await store.blocked.beginAttempt(head, alone(outcome.kind))).toBe(true);
      expect(await store.blocked.endAttempt(head, alone(outcome.kind), outcome)).toBe(true);
      expect(await store.blocked.beginAttempt(head, alone(outcome.kind))).toBe(false);
    }
    expect(await standing()).toMatchObject({ attempts: 1, uncounted: 1, openCount: 0 });
  });

  it('have no attempt begun, and none ended again, once they are dead letters', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    await store.blocked.endAttempt(head!, undefined, { kind: 'dead', error: 'poison' });
    expect(await store.blocked.beginAttempt(head!, alone('late'))).toBe(false);
    await store.blocked.endAttempt(head!, undefined, { kind: 'retry', error: 'late', retryAfterMs: 0 });
    expect((await store.deadLetters.find({}, { limit: 1 })).items).toMatchObject([
      { dead: true, error: 'poison', attempts: 0 },
    ]);
  });

  it('have an attempt uncounted in one step that goes on beside others, while it is open', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    const standing = async (): Promise<unknown> => {
      const [row] = await store.blocked.dueHeads(everywhere, 10);
      return row && [row.attempts, row.openCount];
    };
    const goOn = (): Promise<boolean> => store.blocked.beginAttempt(head!, beside('second'), alone('first'));
    await store.blocked.beginAttempt(head!, alone('first'));
    expect(await standing()).toEqual([1, 1]);
    for (let times = 0; times < 2; times++) {
      expect(await goOn()).toBe(true);
      expect(await standing()).toEqual([0, 1]);
    }
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    await store.blocked.endAttempt(head!, beside('second'), failure);
    expect(await goOn()).toBe(false);
    expect(await standing()).toEqual([1, 0]);
  });

  it('have an attempt that is made beside others counted when it has failed by itself, and never before', async () => {
    const { store, events, block } = await withEvents('a', 1);
    await block({ event: events[0]! });
    const [head] = await store.blocked.dueHeads(everywhere, 10);
    const standing = async (): Promise<unknown> => {
      const [row] = await store.blocked.dueHeads(everywhere, 10);
      return row && [row.attempts, row.openCount, row.uncounted];
    };
    for (const id of ['first', 'first', 'second'])
      expect(await store.blocked.beginAttempt(head!, beside(id))).toBe(true);
    expect(await standing()).toEqual([0, 2, 0]);
    for (let times = 0; times < 2; times++) await store.blocked.giveBackAttempt(head!, beside('first'));
    expect(await standing()).toEqual([0, 1, 0]);
    // What ends does not end its process, so that those are forgotten that did not end before.
    const outage = { kind: 'postponed', error: 'down', retryAfterMs: 0 } as const;
    await store.blocked.beginAttempt(head!, beside('third'));
    for (let times = 0; times < 2; times++) await store.blocked.endAttempt(head!, beside('third'), outage);
    await store.blocked.giveBackAttempt(head!, beside('second'));
    expect(await standing()).toEqual([0, 0, 1]);
    const failure = { kind: 'retry', error: 'by itself', retryAfterMs: 0 } as const;
    await store.blocked.beginAttempt({ ...head!, uncounted: 1 }, beside('fourth'));
    for (let times = 0; times < 2; times++) await store.blocked.endAttempt(head!, beside('fourth'), failure);
    expect(await standing()).toEqual([1, 0, 1]);
    await store.blocked.beginAttempt({ ...head!, attempts: 1, uncounted: 1 }, beside('fifth'));
    await store.blocked.endAttempt(head!, beside('fifth'), { kind: 'dead', error: 'no' });
    expect((await store.deadLetters.find({}, { limit: 1 })).items).toMatchObject([
      { attempts: 2, dead: true },
    ]);
  });
});

/** An attempt beside others. */
function beside(id: string): BlockedAttempt {
  return { id, counted: false };
}

/** All slots of the handler, where nothing waits for longer. */
function placesWaiting(waitMaxMs: number): readonly DuePlace[] {
  return everywhere.map((place) => ({ ...place, waitMaxMs }));
}

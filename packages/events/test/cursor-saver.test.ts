import type { CursorMove } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { CursorSaver } from '../src/slots/cursor-saver.js';
import { HeldSlot } from '../src/slots/held-slot.js';
import { gate } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

test('a cursor that moves while its save fails is saved at its new position, never at the old one', async () => {
  const { opened, open } = gate();
  const saved: string[] = [];
  let saveCount = 0;
  const saver = new CursorSaver(
    workerContext(),
    {
      save: async (moves: readonly CursorMove[]) => {
        if (saveCount++ === 0) {
          await opened;
          throw new Error('down');
        }
        saved.push(...moves.map(({ cursor }) => cursor));
        return [];
      },
    },
    () => undefined,
  );
  const slot = new HeldSlot({ handler: 'one', slot: 0, token: '1', abandoned: false });
  const counts: number[] = [];
  const moveTo = (cursor: string): void =>
    saver.moved({
      handler: 'one',
      slot,
      cursor,
      wantedCount: 1,
      onSaved: (count) => counts.push(count),
    });
  moveTo('1');
  const failing = saver.save(true);
  await Promise.resolve();
  await Promise.resolve();
  moveTo('2');
  let isSettled = false;
  const settled = saver.settled().then(() => (isSettled = true));
  await new Promise((resolve) => setImmediate(resolve));
  expect(isSettled).toBe(false);
  open();
  await expect(failing).rejects.toThrow('down');
  await settled;
  await saver.save(true);
  expect([saved, counts]).toEqual([['2'], [2]]);
});

/** A running saver, and what it has saved at which times. */
class RunningSaver {
  readonly clock = new VirtualClock();
  readonly saved: string[] = [];
  readonly counts: number[] = [];
  readonly lost: string[] = [];
  readonly errors: unknown[] = [];
  /** Errors for the next saves, one each. */
  readonly failures: unknown[] = [];
  lostTokens: readonly string[] = [];
  readonly saver: CursorSaver = new CursorSaver(
    workerContext({ clock: this.clock, onError: (error) => this.errors.push(error) }),
    {
      save: async (moves: readonly CursorMove[]) => {
        const failure = this.failures.shift();
        if (failure !== undefined) throw failure;
        const texts = moves.map(
          ({ handler, slot, token, cursor }) => `${handler} ${slot} ${token} ${cursor}`,
        );
        this.saved.push(`${this.clock.elapsedMs()}: ${texts.join(', ')}`);
        return this.lostTokens;
      },
    },
    (tokens) => this.lost.push(...tokens),
  );
  readonly ended: Promise<void> = this.saver.run();

  readonly move = (slot: HeldSlot, cursor: string, wantedCount: number): void => {
    const { handler } = slot;
    this.saver.moved({ handler, slot, cursor, wantedCount, onSaved: (count) => this.counts.push(count) });
  };
}

function slotOf(slot = 0, token = 't', handler = 'one'): HeldSlot {
  return new HeldSlot({ handler, slot, token, abandoned: false });
}

describe('a cursor', () => {
  test('is saved when it has rested for a second, together with those that are due then', async () => {
    const { clock, saved, counts, move } = new RunningSaver();
    await clock.advance(5_000);
    move(slotOf(0), '1', 2);
    move(slotOf(1), '1', 3);
    await clock.advance(500);
    move(slotOf(2), '1', 1);
    await clock.advance(400);
    expect(saved).toEqual([]);
    await clock.advance(5_000);
    expect(saved).toEqual(['6000: one 0 t 1, one 1 t 1', '6500: one 2 t 1']);
    expect(counts).toEqual([2, 3, 1]);
  });

  test('that moves again and again is saved after ten seconds', async () => {
    const { clock, saved, counts, move } = new RunningSaver();
    const slot = slotOf();
    for (let place = 1; place <= 21; place++) {
      move(slot, `${place}`, 1);
      await clock.advance(500);
    }
    expect(saved).toEqual(['10000: one 0 t 20']);
    expect(counts).toEqual([20]);
  });

  test('that passed a hundred wanted events is saved at once, but no more often than ten times a second', async () => {
    const { clock, saved, move } = new RunningSaver();
    const slot = slotOf();
    move(slot, '1', 99);
    await clock.advance(10);
    expect(saved).toEqual([]);
    move(slot, '2', 1);
    await clock.advance(10);
    move(slot, '3', 100);
    await clock.advance(200);
    expect(saved).toEqual(['10: one 0 t 2', '110: one 0 t 3']);
  });

  test('is saved sooner after half of the events that may be unsaved, so that reading goes on', async () => {
    const { clock, saved, move } = new RunningSaver();
    const [one, other] = [slotOf(0), slotOf(1)];
    move(one, '1', 100);
    await clock.advance(10);
    move(one, '2', 2_499);
    move(other, '1', 2_500);
    await clock.advance(10);
    expect(saved).toEqual(['0: one 0 t 1']);
    move(one, '3', 1);
    await clock.advance(10);
    move(one, '4', 4_999);
    await clock.advance(70);
    expect(saved).toEqual(['0: one 0 t 1', '20: one 0 t 3, one 1 t 1']);
  });

  test('that passed only unwanted events is saved after half a minute, however often it moves', async () => {
    const { clock, saved, move } = new RunningSaver();
    const slot = slotOf();
    for (let place = 1; place <= 31; place++) {
      move(slot, `${place}`, 0);
      await clock.advance(1_000);
    }
    expect(saved).toEqual(['30000: one 0 t 30']);
  });

  test('that passes unwanted events after wanted ones is saved when the wanted ones are due, at its latest position', async () => {
    const { clock, saved, counts, move } = new RunningSaver();
    const slot = slotOf();
    move(slot, '1', 1);
    await clock.advance(900);
    move(slot, '2', 0);
    await clock.advance(900);
    expect([saved, counts]).toEqual([['1000: one 0 t 2'], [1]]);
  });

  test('of a slot that is lost is not saved, and does not count when the slot is gained again', async () => {
    const { clock, saved, counts, move } = new RunningSaver();
    const [before, after] = [slotOf(0, 'before'), slotOf(0, 'after')];
    move(before, '9', 50);
    move(slotOf(1), '1', 1);
    before.lose();
    await clock.advance(2_000);
    move(before, '9', 50);
    move(after, '1', 1);
    await clock.advance(2_000);
    expect([saved, counts]).toEqual([
      ['1000: one 1 t 1', '3000: one 0 after 1'],
      [1, 1],
    ]);
  });

  test('that a caller waits for is saved at once, unless it passed nothing wanted', async () => {
    const { clock, saved, saver, move } = new RunningSaver();
    move(slotOf(0), '1', 1);
    move(slotOf(1), '1', 0);
    await clock.advance(100);
    saver.flushSoon();
    await clock.advance(100);
    expect(saved).toEqual(['100: one 0 t 1']);
  });

  test('that could not be saved is saved when the database is available again, with all that it has passed', async () => {
    const running = new RunningSaver();
    const { clock, saved, counts, errors, move } = running;
    const error = new Error('down');
    running.failures.push(error, error);
    const slot = slotOf();
    move(slot, '1', 2);
    await clock.advance(1_050);
    move(slot, '2', 3);
    await clock.advance(10_000);
    expect(errors).toEqual([error, error]);
    expect([saved.map((text) => text.split(': ')[1]), counts]).toEqual([['one 0 t 2'], [5]]);
  });

  test('whose slot the database has given to another process is reported by its token', async () => {
    const running = new RunningSaver();
    const { clock, lost, move } = running;
    running.lostTokens = ['t'];
    move(slotOf(), '1', 1);
    await clock.advance(1_000);
    expect(lost).toEqual(['t']);
  });

  test('is no longer saved once the saver is stopped, except a last time on request', async () => {
    const { clock, saved, saver, ended, move } = new RunningSaver();
    move(slotOf(), '1', 1);
    saver.stop();
    await ended;
    await clock.advance(60_000);
    expect(saved).toEqual([]);
    await saver.save(true);
    await saver.save(true);
    expect(saved).toEqual(['60000: one 0 t 1']);
  });
});

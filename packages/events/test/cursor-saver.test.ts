import type { CursorMove } from '@framework/core';
import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';
import { HeldSlot } from '../src/lease/held-slot.js';
import { CursorSaver } from '../src/log/cursor-saver.js';
import { CommitHints } from '../src/waking/commit-hints.js';
import { gate } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

test('a cursor that moves while its save fails is saved where it is then, never where it was', async () => {
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
  open();
  await expect(failing).rejects.toThrow('down');
  await saver.save(true);
  expect([saved, counts]).toEqual([['2'], [2]]);
});

test('a commit while a hint is being sent is hinted at, too', async () => {
  const clock = new VirtualClock();
  const { opened, open } = gate();
  let sentCount = 0;
  const hints = new CommitHints({
    channel: {
      notify: async () => {
        sentCount++;
        if (sentCount === 1) await opened;
      },
    },
    intervalMs: 20,
    clock,
    onError: () => undefined,
  });
  hints.hint();
  await clock.advance(1);
  expect(sentCount).toBe(1);
  hints.hint();
  open();
  await clock.advance(100);
  expect(sentCount).toBe(2);
});

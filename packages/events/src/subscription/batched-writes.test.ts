import type { BlockedMove } from '@framework/core/adapter';
import { expect, test } from 'vitest';

import { defaultDeliverySettings } from '../delivery-settings.js';
import { HeldSlot } from '../slots/held-slot.js';
import type { WorkerContext } from '../worker-context.js';
import { blockedWrites } from './batched-writes.js';

const position = { modelVersion: 1, ordinal: 0 };

async function refused(): Promise<never> {
  throw new Error('not used here');
}

/** The moves that are sent together, statement by statement. */
function sentMoves({ answersLater = false } = {}) {
  const sent: (readonly BlockedMove[])[] = [];
  const answers: (() => void)[] = [];
  const context = {
    settings: { ...defaultDeliverySettings, blockMax: 100 },
    ended: new AbortController().signal,
  } as unknown as WorkerContext;
  const move = async (moves: readonly BlockedMove[]): Promise<readonly string[]> => {
    sent.push(moves);
    if (answersLater) await new Promise<void>((resolve) => answers.push(resolve));
    return [];
  };
  const writes = blockedWrites(
    context,
    { fail: refused, hold: refused, begin: refused, move },
    () => undefined,
  );
  const moves = (handler: string, modelId: string, modelVersion: number): Promise<boolean> => {
    const slot = new HeldSlot({ handler, slot: 0, token: `token of ${handler}`, abandoned: false });
    const { token } = slot;
    const model = { handler, slot: 0, token, modelName: 'Account', modelId };
    return writes.move.add(slot, { ...model, position: { ...position, modelVersion }, ends: false });
  };
  return { sent, answers, writes, moves };
}

test('of several moves of one model, only the last one is sent', async () => {
  const { sent, moves } = sentMoves();
  expect(await Promise.all([moves('one', 'a', 1), moves('one', 'a', 2), moves('one', 'b', 1)])).toEqual([
    true,
    true,
    true,
  ]);
  expect(sent.flat().map(({ modelId, position: { modelVersion } }) => [modelId, modelVersion])).toEqual([
    ['a', 2],
    ['b', 1],
  ]);
});

test('the moves of one model for several handlers are all sent', async () => {
  const { sent, moves } = sentMoves();
  await Promise.all([moves('one', 'a', 1), moves('two', 'a', 2), moves('two', 'a', 3)]);
  expect(sent.flat().map(({ handler, position: { modelVersion } }) => [handler, modelVersion])).toEqual([
    ['one', 1],
    ['two', 3],
  ]);
});

test('a wait for the answers to what was sent does not last until nothing more is sent', async () => {
  const { writes, answers, moves } = sentMoves({ answersLater: true });
  const first = moves('one', 'a', 1);
  let isAnswered = false;
  void writes.move.answered().then(() => (isAnswered = true));
  for (let version = 2; version < 20; version++) {
    void moves('one', `b${version}`, version);
    await Promise.resolve();
  }
  answers.shift()?.();
  await first;
  await new Promise(setImmediate);
  expect([isAnswered, answers.length > 0]).toEqual([true, true]);
});

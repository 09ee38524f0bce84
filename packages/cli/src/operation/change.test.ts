import type { ChangeAnswer, ChangeOptions } from '@framework/operator';
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';

import { Terminal } from '../terminal.js';
import { makeChange } from './change.js';
import type { OperatorSession } from './operator-session.js';

/** What each call of the change answers: how many events, and whether there may be more. */
type Step = readonly [count: number, mayBeMore?: boolean, failureCode?: string];

function answerOf([count, mayBeMore = false, code]: Step, changeId: string | undefined): ChangeAnswer {
  const failures = code === undefined ? [] : [{ shards: ['1/0'], code }];
  return { changeId, count, mayBeMore, items: [{ shards: ['0/0'], count, mayBeMore }], failures };
}

/** Makes a change whose count and steps are given; returns what was written, and how many steps were made. */
async function changed(counted: Step, steps: readonly Step[], isOfEvents = true) {
  let text = '';
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      text += String(chunk);
      done();
    },
  });
  const terminal = new Terminal({ stdout: stream, stderr: stream });
  const session = { terminal, format: 'json', fail: () => 0 } as unknown as OperatorSession;
  let stepCount = 0;
  const make = async ({ dryRun = false }: ChangeOptions): Promise<ChangeAnswer> =>
    dryRun ? answerOf(counted, undefined) : answerOf(steps[stepCount++] ?? [0], `change-${stepCount}`);
  await makeChange(
    session,
    { by: 'olivia', reason: 'x', yes: true },
    { isOfEvents, question: () => '', make },
  );
  return { stepCount, ...(JSON.parse(text) as { readonly count: number; readonly mayBeMore: boolean }) };
}

test.each<[string, Step, readonly Step[], object]>([
  [
    'goes on until what was counted is changed',
    [25],
    [[10, true], [10, true], [5]],
    { stepCount: 3, count: 25, mayBeMore: false },
  ],
  [
    'does not go on with what is blocked again meanwhile',
    [20],
    [
      [10, true],
      [10, true],
      [10, true],
    ],
    { stepCount: 2, count: 20, mayBeMore: false },
  ],
  [
    'goes on to the end if not everything could be counted',
    [10, true],
    [[10, true], [10, true], [3]],
    { stepCount: 3, count: 23, mayBeMore: false },
  ],
  [
    'ends with a database that fails, and says that there may be more',
    [30],
    [[10, true], [10, true, 'shard-unavailable'], [10]],
    { stepCount: 2, count: 20, mayBeMore: true },
  ],
  ['that would change nothing is not made', [0], [[1]], { stepCount: 0, count: 0 }],
])('a change of events %s', async (_what, counted, steps, expected) => {
  expect(await changed(counted, steps)).toMatchObject(expected);
});

test('a change of a handler is one step, although no event is counted', async () => {
  expect(await changed([0], [[0, true], [0]], false)).toMatchObject({ stepCount: 1 });
});

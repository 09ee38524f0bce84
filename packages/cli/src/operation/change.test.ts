import { UnknownHandlerError } from '@framework/core/adapter';
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
async function changed(
  counted: Step,
  steps: readonly Step[],
  isOfEvents = true,
  given?: (dryRun: boolean, limit: number) => ChangeAnswer,
) {
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
  const make = async ({ dryRun = false }: ChangeOptions, limit: number): Promise<ChangeAnswer> => {
    if (given !== undefined) return given(dryRun, limit);
    return dryRun ? answerOf(counted, undefined) : answerOf(steps[stepCount++] ?? [0], `change-${stepCount}`);
  };
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

/** What two databases answer. */
function of(first: number, second: number, mayBeMore: readonly [boolean, boolean]): ChangeAnswer {
  return {
    changeId: 'c',
    count: first + second,
    mayBeMore: mayBeMore.includes(true),
    items: [
      { shards: ['0/0'], count: first, mayBeMore: mayBeMore[0] },
      { shards: ['1/0'], count: second, mayBeMore: mayBeMore[1] },
    ],
    failures: [],
  };
}

test('what is blocked again in one database does not count for what another one has left', async () => {
  const steps = [
    of(9_000, 10_000, [false, true]),
    of(9_000, 10_000, [true, true]),
    of(5_000, 5_000, [true, true]),
  ];
  const limits: number[] = [];
  const { count, mayBeMore } = await changed([0], [], true, (dryRun, limit) => {
    if (dryRun) return of(9_000, 25_000, [false, false]);
    limits.push(limit);
    return steps.shift() ?? of(0, 0, [false, false]);
  });
  expect({ limits, count, mayBeMore }).toEqual({
    limits: [10_000, 10_000, 5_000],
    count: 48_000,
    mayBeMore: false,
  });
});

test('a change tells for each database whether something is left, whichever step changed it', async () => {
  const failed = { ...of(10_000, 1_000, [true, false]), failures: [{ shards: ['1/0'], code: 'internal' }] };
  const steps = [of(10_000, 10_000, [true, true]), failed];
  const ended = await changed([0], [], true, (dryRun) =>
    dryRun ? of(20_000, 15_000, [false, false]) : (steps.shift() ?? of(0, 0, [false, false])),
  );
  expect(ended).toMatchObject({
    count: 31_000,
    mayBeMore: true,
    items: [
      { shards: ['0/0'], count: 20_000, mayBeMore: false },
      { shards: ['1/0'], count: 11_000, mayBeMore: true },
    ],
  });
});

test('a change tells what it has made if a later step is refused, such as for a handler that was retired', async () => {
  let stepCount = 0;
  const make = (dryRun: boolean): ChangeAnswer => {
    if (!dryRun && ++stepCount > 1) throw new UnknownHandlerError('notify');
    return dryRun ? answerOf([25], undefined) : answerOf([10, true], 'change-1');
  };
  expect(await changed([0], [], true, make)).toMatchObject({
    changeIds: ['change-1'],
    count: 10,
    mayBeMore: true,
    items: [{ shards: ['0/0'], count: 10, mayBeMore: true }],
    failures: [{ shards: ['0/0'], code: 'unknown-handler' }],
  });
});

test('a change whose first step is refused is not made', async () => {
  const made = changed([0], [], true, (dryRun) => {
    if (!dryRun) throw new UnknownHandlerError('notify');
    return answerOf([25], undefined);
  });
  await expect(made).rejects.toMatchObject({ code: 'unknown-handler' });
});

test('a change is limited to what was counted', async () => {
  const limits: number[] = [];
  await changed([0], [], true, (dryRun, limit) => {
    if (!dryRun) limits.push(limit);
    return answerOf([5, !dryRun], 'c');
  });
  expect(limits).toEqual([5]);
});

test('a change of a handler is one step, although no event is counted', async () => {
  expect(await changed([0], [[0, true], [0]], false)).toMatchObject({ stepCount: 1 });
});

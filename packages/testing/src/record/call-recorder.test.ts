import { expect, test } from 'vitest';

import { CallRecorder, type Verdict } from './call-recorder.js';

const judge = (answer: Verdict): Verdict => {
  if (answer.says === 'a stack trace') throw new Error('an undocumented answer');
  return answer;
};
const ok: Verdict = { outcome: 'ok', says: '200', result: { balance: '3' } };
const refused: Verdict = { outcome: 'refused', says: '422 too-little' };
const unknown: Verdict = { outcome: 'unknown', says: '503 away' };

/** A recorder with a call that gets these answers, one after the other; `undefined` breaks the connection. */
async function recorded(...answers: readonly (Verdict | undefined)[]) {
  const recorder = new CallRecorder<Verdict>({ judge });
  const keys: string[] = [];
  const waiting = [...answers];
  const call = await recorder.call('pay', async (key) => {
    keys.push(key);
    const answer = waiting.shift();
    if (answer === undefined) throw new Error('the connection broke');
    return answer;
  });
  return { recorder, keys, call };
}

test('a call is repeated under its key until its outcome is known', async () => {
  const { recorder, keys, call } = await recorded(undefined, unknown, ok);
  expect(call.outcome).toBe('unknown');
  await recorder.settle();
  expect(call).toMatchObject({ outcome: 'ok', says: '200', answers: [unknown, ok] });
  expect(new Set(keys).size).toBe(1);
  expect(Object.fromEntries(recorder.counts)).toEqual({ none: 1, '503 away': 1, '200': 1 });
  expect(recorder.violations).toEqual([]);
});

test('a call whose outcome is still unknown at the deadline is named in the error', async () => {
  const { recorder } = await recorded(unknown);
  await expect(recorder.settle({ withinMs: 0 })).rejects.toThrow(
    /^Calls without a known outcome after 0 ms: pay \(.+\): none$/,
  );
});

test.each([
  ['is refused', refused, /its repeat was refused: 422 too-little$/],
  ['has another result', { ...ok, result: { balance: '0' } }, /its repeat has another result$/],
])(
  'a successful call stays successful, and a repeat that %s is a violation',
  async (_title, answer, violation) => {
    const { recorder, call } = await recorded(ok, answer);
    await recorder.repeat(call);
    expect(call.outcome).toBe('ok');
    expect(recorder.violations).toEqual([expect.stringMatching(violation)]);
  },
);

test('a repeat without an answer, or with the same one, is not a violation', async () => {
  const { recorder, call } = await recorded(ok, undefined, { ...ok });
  await recorder.repeat(call);
  await recorder.repeat(call);
  expect(call).toMatchObject({ outcome: 'ok', says: '200' });
  expect(recorder.violations).toEqual([]);
});

test('a refused call may succeed when it is repeated', async () => {
  const { recorder, call } = await recorded(refused, ok);
  await recorder.repeat(call);
  expect(call.outcome).toBe('ok');
});

test('an answer that the service must never give is a violation and leaves the outcome unknown', async () => {
  const { recorder, call } = await recorded({ outcome: 'ok', says: 'a stack trace' });
  expect(call.outcome).toBe('unknown');
  expect(recorder.violations).toEqual([
    expect.stringMatching(/got an answer that must never be given: an undocumented answer$/),
  ]);
});

test('a call that is not answered in time is abandoned', async () => {
  const recorder = new CallRecorder<Verdict>({ judge, answerTimeoutMs: 1 });
  const call = await recorder.call(
    'pay',
    (_key, signal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      }),
  );
  expect(call).toMatchObject({ outcome: 'unknown', says: 'none' });
});

test('a call of another recorder cannot be repeated', async () => {
  const { call } = await recorded(ok);
  const { recorder } = await recorded(ok);
  await expect(recorder.repeat(call)).rejects.toThrow(RangeError);
});

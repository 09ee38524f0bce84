import { ShardUnavailableError, UnknownActionError } from '@framework/core';
import type { BlockedHead } from '@framework/core/adapter';
import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { type AttemptFailure, defaultDeliverySettings } from '../src/index.js';
import { HeldSlot } from '../src/slots/held-slot.js';
import type { RetryWork } from '../src/subscription/keyed-queue.js';
import { RetryStep } from '../src/subscription/retry-step.js';
import { deposited } from './account.js';
import { gate, shard } from './delivery-bench.js';
import { workerContext } from './worker-context.js';

type StepOptions = ConstructorParameters<typeof RetryStep>[0];
type Outcome = Awaited<ReturnType<StepOptions['caller']['call']>>;

const { leaseMs } = defaultDeliverySettings;
const attemptsMax = 3;
const unavailable = new ShardUnavailableError(shard, 'silent');

/** The retries of one handler, and their results: what the database was told, failures and errors. */
class Retries {
  readonly clock = new VirtualClock();
  readonly stopping = new AbortController();
  readonly ended = new AbortController();
  readonly asked: (readonly unknown[])[] = [];
  readonly told: AttemptFailure[] = [];
  readonly errors: unknown[] = [];
  readonly lost: string[] = [];
  /** The events, and the number of the attempt, of each call. */
  readonly calls: (readonly unknown[])[] = [];
  /** What the database answers to the next statements, or throws; otherwise it answers that they were done. */
  readonly answers: (boolean | Error | Promise<boolean>)[] = [];
  /** How the calls end. */
  outcome: () => Outcome | Promise<Outcome> = () => ({ kind: 'done' });
  hasStood = false;
  isWanted = true;
  readonly #step: RetryStep;

  constructor() {
    this.#step = new RetryStep({
      context: workerContext({
        clock: this.clock,
        stopping: this.stopping.signal,
        ended: this.ended.signal,
        onAttemptFailed: (failure) => this.told.push(failure),
        onError: (error) => this.errors.push(error),
      }),
      blocked: {
        beginAttempt: (_head, { counted }, before) =>
          this.#answer('begin', counted, ...(before === undefined ? [] : [`instead of ${before.counted}`])),
        endAttempt: (_head, attempt, outcome) => this.#answer('end', attempt?.counted, outcome),
        giveBackAttempt: async (_head, { counted }) => void (await this.#answer('give back', counted)),
      },
      policy: {
        retry: { ...defaultDeliverySettings.retry, attemptsMax, outageBackoffMaxMs: 5_000 },
        waitsWhenFailed: false,
      },
      caller: {
        handler: 'one',
        call: async (events: readonly { readonly id: string }[], attempt: number) => {
          this.calls.push([...events.map(({ id }) => id), attempt]);
          return this.outcome();
        },
      },
      watch: { now: () => this.clock.elapsedMs(), stoodSince: () => this.hasStood },
      onLost: (tokens) => this.lost.push(...tokens),
      wants: () => this.isWanted,
    } as Pick<StepOptions, 'blocked' | 'watch' | 'onLost'> as StepOptions);
  }

  run(head: Partial<BlockedHead> = {}, own: Partial<RetryWork> = {}): Promise<void> {
    return this.#step.run({
      kind: 'retry',
      head: {
        handler: 'one',
        event: deposited('a', 1),
        attempts: 1,
        openCount: 0,
        uncounted: 0,
        suspect: false,
        token: '1',
        ...head,
      },
      slot: heldSlot(),
      alone: undefined,
      onEnded: () => undefined,
      ...own,
    });
  }

  async #answer(...asked: readonly unknown[]): Promise<boolean> {
    this.asked.push(asked);
    const answer = await (this.answers.shift() ?? true);
    if (answer instanceof Error) throw answer;
    return answer;
  }
}

function heldSlot(): HeldSlot {
  return new HeldSlot({ handler: 'one', slot: 0, token: '1', abandoned: false });
}

function failedWith(error: unknown): () => Outcome {
  return () => ({ kind: 'failed', error });
}

/** An event whose last attempt was counted, and whose end nobody has reported. */
const exhausted = { attempts: attemptsMax, openCount: 1 };
const down = new Error('down');
const done = { kind: 'done' };

describe('an attempt at a blocked event', () => {
  test('is begun before its call, which gets the next number, and ended after it', async () => {
    const retries = new Retries();
    await retries.run();
    expect(retries.calls).toEqual([['a1', 2]]);
    expect(retries.asked).toEqual([
      ['begin', false],
      ['end', false, done],
    ]);
    expect([retries.told, retries.errors, retries.lost]).toEqual([[], [], []]);
  });

  test.each([
    ['alone', new AbortController().signal, true],
    ['no longer alone', AbortSignal.abort(), false],
  ])('is counted before the call only if it is made alone: %s', async (_how, alone, counted) => {
    const retries = new Retries();
    await retries.run({}, { alone });
    expect(retries.asked).toEqual([
      ['begin', counted],
      ['end', counted, done],
    ]);
  });

  test.each([
    ['is uncounted', false, [['begin', false, 'instead of true']], false],
    // The call may be the reason.
    ['stays counted if the event loop has stopped', true, [], true],
  ])('that stops being alone before its call is over %s', async (_what, hasStood, asked, counted) => {
    const retries = new Retries();
    const [alone, hold] = [new AbortController(), gate()];
    retries.outcome = async () => {
      await hold.opened;
      return { kind: 'done' };
    };
    retries.hasStood = hasStood;
    const running = retries.run({}, { alone: alone.signal });
    await retries.clock.advance(10);
    alone.abort();
    await retries.clock.advance(10);
    hold.open();
    await running;
    expect(retries.asked).toEqual([['begin', true], ...asked, ['end', counted, done]]);
  });

  test('stays counted if the database does not take the count back', async () => {
    const retries = new Retries();
    const [alone, hold] = [new AbortController(), gate()];
    retries.outcome = async () => {
      await hold.opened;
      return { kind: 'done' };
    };
    retries.answers.push(true, false);
    const running = retries.run({}, { alone: alone.signal });
    await retries.clock.advance(10);
    alone.abort();
    await retries.clock.advance(10);
    hold.open();
    await running;
    expect(retries.asked.at(-1)).toEqual(['end', true, done]);
  });

  test('that fails is followed by another after a backoff, until the last makes a dead letter', async () => {
    const retries = new Retries();
    retries.outcome = failedWith(new Error('no'));
    await retries.run();
    await retries.run({ attempts: 2 });
    const error = 'Error: no';
    expect(retries.asked.filter(([what]) => what === 'end')).toEqual([
      ['end', false, { kind: 'retry', error, retryAfterMs: 1_000 }],
      ['end', false, { kind: 'dead', error }],
    ]);
    expect(retries.told).toMatchObject([
      { handler: 'one', eventCount: 1, attempt: 2, counted: true, willRetry: true, retryAfterMs: 1_000 },
      { handler: 'one', eventCount: 1, attempt: 3, counted: true, willRetry: false, retryAfterMs: undefined },
    ]);
  });

  test('that fails in an outage is postponed for longer each time, even the last one', async () => {
    const retries = new Retries();
    retries.outcome = failedWith(unavailable);
    await retries.run({ attempts: 2, uncounted: 1 });
    expect(retries.asked.at(-1)).toMatchObject(['end', false, { kind: 'postponed', retryAfterMs: 1_000 }]);
    expect(retries.told).toMatchObject([
      { attempt: 3, counted: false, willRetry: true, retryAfterMs: 1_000 },
    ]);
  });

  test('that cannot succeed makes a dead letter at once', async () => {
    const retries = new Retries();
    retries.outcome = failedWith(new UnknownActionError('Nothing'));
    await retries.run();
    expect(retries.asked.at(-1)).toMatchObject(['end', false, { kind: 'dead' }]);
    expect(retries.told).toMatchObject([{ attempt: 2, counted: true, willRetry: false }]);
  });

  test.each([
    ['the handler may not be called now', 'held-back'],
    ['its slot was lost meanwhile', 'dropped'],
  ] as const)('is taken back when %s', async (_when, kind) => {
    const retries = new Retries();
    retries.outcome = () => ({ kind });
    await retries.run();
    expect(retries.asked).toEqual([
      ['begin', false],
      ['give back', false],
    ]);
    expect(retries.told).toEqual([]);
  });

  test.each<[string, () => Outcome]>([
    ['done', () => ({ kind: 'done' })],
    ['an outage', failedWith(unavailable)],
  ])('is taken back if the database says that the lease is lost: %s', async (_what, outcome) => {
    const retries = new Retries();
    retries.outcome = outcome;
    retries.answers.push(true, false);
    await retries.run();
    expect(retries.asked.at(-1)).toEqual(['give back', false]);
    expect(retries.lost).toEqual(['1']);
  });

  test('that failed by itself is not taken back after its report', async () => {
    const retries = new Retries();
    retries.outcome = failedWith(new Error('no'));
    retries.answers.push(true, false);
    await retries.run();
    expect(retries.asked).toHaveLength(2);
    expect(retries.lost).toEqual(['1']);
  });
});

describe('an attempt during which the event loop stopped', () => {
  test.each([
    ['is reported, and not taken back', {}, undefined, [{ attempt: 2, counted: false, retryAfterMs: 0 }]],
    ['is reported even as the last one if it is not counted', { attempts: 2 }, undefined, [{ attempt: 3 }]],
    // The process that ends the event reports it.
    ['is not reported if it is counted and the last one', { attempts: 2 }, new AbortController().signal, []],
    ['is reported if it is counted and not the last one', {}, new AbortController().signal, [{ attempt: 2 }]],
  ])('%s', async (_what, head, alone, told) => {
    const retries = new Retries();
    retries.outcome = () => ({ kind: 'dropped' });
    retries.hasStood = true;
    await retries.run(head, { alone });
    expect(retries.asked).toEqual([['begin', alone !== undefined]]);
    expect(retries.told).toMatchObject(told);
    expect(retries.told).toHaveLength(told.length);
    expect(retries.told.every(({ willRetry }) => willRetry)).toBe(true);
  });
});

describe('the beginning of an attempt', () => {
  test('is recorded again and again until the database answers, with pauses', async () => {
    const retries = new Retries();
    retries.answers.push(down, down);
    const running = retries.run();
    await retries.clock.advance(99);
    expect(retries.asked).toHaveLength(1);
    await retries.clock.advance(1_000);
    await running;
    expect(retries.asked.map(([what]) => what)).toEqual(['begin', 'begin', 'begin', 'end']);
    expect(retries.errors).toEqual([down, down]);
  });

  test.each([
    ['refuses it', [false], ['begin']],
    ['refuses it after an answer was lost', [down, false], ['begin', 'begin', 'give back']],
  ])('calls no handler when the database %s', async (_what, answers, asked) => {
    const retries = new Retries();
    retries.answers.push(...answers);
    const running = retries.run();
    await retries.clock.advance(1_000);
    await running;
    expect(retries.asked.map(([what]) => what)).toEqual(asked);
    expect(retries.calls).toEqual([]);
  });

  test.each([
    ['the slot is lost', (_retries: Retries, slot: HeldSlot) => slot.lose()],
    ['delivery ends', ({ ended }: Retries) => ended.abort()],
  ])('is taken back when %s before the answer', async (_what, end) => {
    const retries = new Retries();
    const slot = heldSlot();
    const hold = gate();
    retries.answers.push(hold.opened.then(() => true));
    const running = retries.run({}, { slot });
    end(retries, slot);
    hold.open();
    await running;
    expect(retries.asked.map(([what]) => what)).toEqual(['begin', 'give back']);
    expect(retries.calls).toEqual([]);
  });

  test.each([
    ['the slot is lost', (_retries: Retries, slot: HeldSlot) => slot.lose()],
    ['the process stops', ({ stopping }: Retries) => stopping.abort()],
  ])('is abandoned and taken back when %s while the database is down', async (_what, end) => {
    const retries = new Retries();
    const slot = heldSlot();
    retries.answers.push(down);
    const running = retries.run({}, { slot });
    await retries.clock.advance(1);
    end(retries, slot);
    await retries.clock.advance(0);
    await running;
    expect(retries.asked.map(([what]) => what)).toEqual(['begin', 'give back']);
    expect(retries.calls).toEqual([]);
  });
});

describe('the end of an attempt', () => {
  test('is recorded again and again until the database answers, with pauses', async () => {
    const retries = new Retries();
    retries.answers.push(true, down, down);
    const running = retries.run();
    await retries.clock.advance(99);
    expect(retries.asked).toHaveLength(2);
    await retries.clock.advance(1_000);
    await running;
    expect(retries.asked.map(([what]) => what)).toEqual(['begin', 'end', 'end', 'end']);
    expect(retries.errors).toEqual([down, down]);
  });

  test.each([
    ['the slot is lost', (_retries: Retries, slot: HeldSlot) => slot.lose()],
    ['delivery ends', ({ ended }: Retries) => ended.abort()],
  ])('is abandoned when %s while the database is down, and the attempt is taken back', async (_what, end) => {
    const retries = new Retries();
    const slot = heldSlot();
    retries.answers.push(true, down);
    const running = retries.run({}, { slot });
    await retries.clock.advance(1);
    end(retries, slot);
    await retries.clock.advance(0);
    await running;
    expect(retries.asked.map(([what]) => what)).toEqual(['begin', 'end', 'give back']);
    expect(retries.lost).toEqual([]);
  });
});

describe('an attempt that must be taken back', () => {
  test('is taken back as soon as the database can serve, however long that takes', async () => {
    const retries = new Retries();
    retries.outcome = () => ({ kind: 'held-back' });
    retries.answers.push(true, ...Array.from({ length: 20 }, () => down));
    const running = retries.run();
    await retries.clock.advance(600_000);
    await running;
    expect(retries.asked).toHaveLength(1 + 21);
    expect(retries.errors).toHaveLength(20);
  });

  test('stays counted after three failed tries once delivery has ended', async () => {
    const retries = new Retries();
    retries.outcome = () => ({ kind: 'held-back' });
    retries.answers.push(true, ...Array.from({ length: 20 }, () => down));
    const running = retries.run();
    await retries.clock.advance(10);
    retries.ended.abort();
    await retries.clock.advance(60_000);
    await running;
    expect(retries.asked).toHaveLength(1 + 3);
  });
});

test.each([
  ['is to be tried', {}],
  ['has no attempts left', exhausted],
])('an event that %s is left alone when its slot was lost before its turn', async (_what, head) => {
  const retries = new Retries();
  const slot = heldSlot();
  slot.lose();
  await retries.run(head, { slot });
  await retries.run(head, { slot });
  expect([retries.asked, retries.told]).toEqual([[], []]);
});

test('the last attempt may be taken back for the time of a lease, whenever it was begun', async () => {
  const retries = new Retries();
  const postponed = ['end', undefined, { kind: 'postponed', retryAfterMs: leaseMs }];
  retries.outcome = () => ({ kind: 'held-back' });
  await retries.run(exhausted);
  // The attempt was taken back, and the time starts again.
  await retries.run({ attempts: attemptsMax - 1 });
  await retries.run(exhausted);
  expect(retries.asked).toMatchObject([postponed, ['begin', false], ['give back', false], postponed]);
  expect(retries.told).toEqual([]);
  await retries.run(exhausted);
  expect(retries.asked.slice(4)).toMatchObject([['end', undefined, { kind: 'dead' }]]);
  expect(retries.told).toMatchObject([{ attempt: attemptsMax, counted: true, willRetry: false }]);
  expect(retries.calls).toHaveLength(1);
});

test('an event that the handler does not want waits, longer each time, and is reported once per type', async () => {
  const retries = new Retries();
  retries.isWanted = false;
  await retries.run();
  await retries.run({ uncounted: 1 });
  await retries.run({ event: deposited('a', 2, { type: 'ClosedEvent' }) });
  expect(retries.asked).toMatchObject([
    ['end', undefined, { kind: 'postponed', retryAfterMs: 500 }],
    ['end', undefined, { kind: 'postponed', retryAfterMs: 1_000 }],
    ['end', undefined, { kind: 'postponed', retryAfterMs: 500 }],
  ]);
  expect(retries.errors).toHaveLength(2);
  expect([retries.calls, retries.told]).toEqual([[], []]);
});

import { VirtualClock } from '@framework/testing';
import { expect, test } from 'vitest';

import { LogPoll } from '../src/subscription/log-reader.js';
import { testSettings, workerContext } from './worker-context.js';

/** A running poll, and the times at which it polled. */
class RunningPoll {
  readonly clock = new VirtualClock();
  readonly looks: number[] = [];
  readonly #stopping = new AbortController();
  foundCount = 0;
  readonly poll: LogPoll = new LogPoll({
    context: workerContext({
      clock: this.clock,
      settings: testSettings({ pollMinMs: 100, pollMaxMs: 350 }),
      stopping: this.#stopping.signal,
    }),
    foundCount: () => this.foundCount,
    look: () => this.looks.push(this.clock.elapsedMs()),
  });
  readonly ended: Promise<void> = this.poll.run();

  stop(): void {
    this.#stopping.abort();
    this.poll.wake();
  }
}

test('the log is polled less often the longer nothing comes, until the longest time between polls is reached', async () => {
  const { clock, looks } = new RunningPoll();
  await clock.advance(1_400);
  expect(looks).toEqual([100, 300, 650, 1_000, 1_350]);
});

test('the log is polled at once on request, and then at short intervals again', async () => {
  const { clock, looks, poll } = new RunningPoll();
  await clock.advance(1_000);
  poll.wake();
  await clock.advance(300);
  expect(looks).toEqual([100, 300, 650, 1_000, 1_000, 1_100, 1_300]);
});

test('the log is polled at short intervals again after something came', async () => {
  const running = new RunningPoll();
  await running.clock.advance(1_000);
  running.foundCount = 3;
  await running.clock.advance(650);
  expect(running.looks).toEqual([100, 300, 650, 1_000, 1_350, 1_450, 1_650]);
});

test('the log is no longer polled when delivery stops', async () => {
  const running = new RunningPoll();
  await running.clock.advance(100);
  running.stop();
  await running.ended;
  const lookCount = running.looks.length;
  await running.clock.advance(10_000);
  expect(running.looks).toHaveLength(lookCount);
});

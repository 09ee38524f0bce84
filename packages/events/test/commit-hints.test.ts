import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { CommitHints } from '../src/wake/notifications.js';
import { gate } from './delivery-bench.js';

/** Hints, with when they were sent and what went wrong. */
class SentHints {
  readonly clock = new VirtualClock();
  readonly sentMs: number[] = [];
  readonly errors: unknown[] = [];
  /** What becomes of the hints. */
  outcome: () => Promise<void> = () => Promise.resolve();
  readonly hints: CommitHints = new CommitHints({
    channel: {
      notify: () => {
        this.sentMs.push(this.clock.elapsedMs());
        return this.outcome();
      },
    },
    intervalMs: 20,
    clock: this.clock,
    onError: (error) => this.errors.push(error),
  });
}

describe('hints', () => {
  test('are sent at once after a pause, and at most once per interval', async () => {
    const { clock, hints, sentMs } = new SentHints();
    await clock.advance(1_000);
    for (let commits = 0; commits < 30; commits++) {
      hints.hint();
      await clock.advance(1);
    }
    await clock.advance(1_000);
    hints.hint();
    await clock.advance(1_000);
    expect(sentMs).toEqual([1_000, 1_020, 1_040, 2_030]);
  });

  test('are sent one at a time, however late the database answers', async () => {
    const sent = new SentHints();
    sent.outcome = () => sent.clock.sleep(500);
    for (let commits = 0; commits < 400; commits++) {
      sent.hints.hint();
      await sent.clock.advance(1);
    }
    expect(sent.sentMs).toEqual([0]);
    await sent.clock.advance(2_000);
    expect(sent.sentMs).toEqual([0, 500]);
  });

  test('go on after one that failed, which is told', async () => {
    const sent = new SentHints();
    const error = new Error('down');
    sent.outcome = () => Promise.reject(error);
    sent.hints.hint();
    await sent.clock.advance(100);
    sent.hints.hint();
    await sent.clock.advance(100);
    expect(sent.sentMs).toEqual([0, 100]);
    expect(sent.errors).toEqual([error, error]);
  });

  test('are sent no more once they are stopped, also those that wait for their turn', async () => {
    const { clock, hints, sentMs } = new SentHints();
    hints.hint();
    await clock.advance(1);
    hints.hint();
    await clock.advance(1);
    hints.stop();
    hints.hint();
    await clock.advance(1_000);
    expect(sentMs).toEqual([0]);
    expect(clock.sleeperCount).toBe(0);
  });

  test('follow once more when something is committed while one is being sent', async () => {
    const sent = new SentHints();
    const { opened, open } = gate();
    sent.outcome = () => opened;
    sent.hints.hint();
    await sent.clock.advance(1);
    sent.hints.hint();
    open();
    await sent.clock.advance(100);
    expect(sent.sentMs).toEqual([0, 20]);
  });
});

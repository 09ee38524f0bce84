import { VirtualClock } from '@framework/testing';
import { describe, expect, test } from 'vitest';

import { CommitNotifications } from '../src/notifications.js';
import { gate } from './delivery-bench.js';

/** Notifications, with the times when they were sent and the errors. */
class SentNotifications {
  readonly clock = new VirtualClock();
  readonly sentMs: number[] = [];
  readonly errors: unknown[] = [];
  /** What happens to the notifications. */
  outcome: () => Promise<void> = () => Promise.resolve();
  readonly notifications: CommitNotifications = new CommitNotifications({
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

describe('notifications', () => {
  test('are sent at once after a pause, and at most once per interval', async () => {
    const { clock, notifications, sentMs } = new SentNotifications();
    await clock.advance(1_000);
    for (let commits = 0; commits < 30; commits++) {
      notifications.notify();
      await clock.advance(1);
    }
    await clock.advance(1_000);
    notifications.notify();
    await clock.advance(1_000);
    expect(sentMs).toEqual([1_000, 1_020, 1_040, 2_030]);
  });

  test('are sent one at a time, however late the database answers', async () => {
    const sent = new SentNotifications();
    sent.outcome = () => sent.clock.sleep(500);
    for (let commits = 0; commits < 400; commits++) {
      sent.notifications.notify();
      await sent.clock.advance(1);
    }
    expect(sent.sentMs).toEqual([0]);
    await sent.clock.advance(2_000);
    expect(sent.sentMs).toEqual([0, 500]);
  });

  test('continue after one that failed, which is reported', async () => {
    const sent = new SentNotifications();
    const error = new Error('down');
    sent.outcome = () => Promise.reject(error);
    sent.notifications.notify();
    await sent.clock.advance(100);
    sent.notifications.notify();
    await sent.clock.advance(100);
    expect(sent.sentMs).toEqual([0, 100]);
    expect(sent.errors).toEqual([error, error]);
  });

  test('are no longer sent once they are stopped, not even those that are waiting', async () => {
    const { clock, notifications, sentMs } = new SentNotifications();
    notifications.notify();
    await clock.advance(1);
    notifications.notify();
    await clock.advance(1);
    notifications.stop();
    notifications.notify();
    await clock.advance(1_000);
    expect(sentMs).toEqual([0]);
    expect(clock.sleeperCount).toBe(0);
  });

  test('are sent once more when something is committed while one is being sent', async () => {
    const sent = new SentNotifications();
    const { opened, open } = gate();
    sent.outcome = () => opened;
    sent.notifications.notify();
    await sent.clock.advance(1);
    sent.notifications.notify();
    open();
    await sent.clock.advance(100);
    expect(sent.sentMs).toEqual([0, 20]);
  });
});

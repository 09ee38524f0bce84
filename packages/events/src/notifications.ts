import {
  type ActionExecutor,
  type Clock,
  type DatabaseRegistry,
  type ShardIdentifier,
  systemClock,
} from '@framework/core';
import { type NotificationChannel, outsideRequests } from '@framework/core/adapter';

import { notifyCoalesceMs } from './delivery-tuning.js';
import { type WorkerContext, quiet, untilAborted, untilDone } from './worker-context.js';

interface CommitNotificationsOptions {
  readonly channel: Pick<NotificationChannel, 'notify'>;
  readonly intervalMs: number;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/** Notifies other processes that something was committed: at once, then at most once per interval. */
export class CommitNotifications {
  readonly #options: CommitNotificationsOptions;
  #lastMs = -Infinity;
  #pending = false;
  #sending = false;
  readonly #stopped = new AbortController();

  constructor(options: CommitNotificationsOptions) {
    this.#options = options;
  }

  /** Returns at once, whatever happens to the notification: no commit waits for it. */
  notify(): void {
    this.#pending = true;
    // A running loop covers this commit, too.
    if (!this.#sending) outsideRequests(() => void this.#send());
  }

  stop(): void {
    this.#stopped.abort();
  }

  /** One at a time, so that a database that does not answer holds only one statement. */
  async #send(): Promise<void> {
    const { channel, intervalMs, clock, onError } = this.#options;
    this.#sending = true;
    while (this.#pending && !this.#stopped.signal.aborted) {
      const waitMs = this.#lastMs + intervalMs - clock.elapsedMs();
      if (waitMs > 0) await clock.sleep(waitMs, this.#stopped.signal);
      this.#lastMs = clock.elapsedMs();
      // Anything committed from here on is no longer covered by this notification.
      this.#pending = false;
      if (this.#stopped.signal.aborted) break;
      await channel.notify().catch(onError);
    }
    this.#sending = false;
  }
}

/**
 * Calls the listener whenever another process notifies, until delivery stops. Notifications only save time; polling finds
 * everything.
 */
export async function listenForNotifications(
  context: WorkerContext,
  channel: Pick<NotificationChannel, 'listen'>,
  onNotification: () => void,
): Promise<void> {
  const { stopping } = context;
  const unlisten = await untilDone(context, stopping, () => channel.listen(onNotification));
  if (unlisten === undefined) return;
  await untilAborted(stopping);
  await unlisten();
}

/**
 * Notifies other processes of this one's commits, in a process that executes actions but delivers nothing itself.
 *
 * @returns a function that ends the notifications
 */
export function notifyOfCommits(options: {
  readonly databases: Pick<DatabaseRegistry, 'deliveries'>;
  readonly executor: Pick<ActionExecutor, 'onCommit'>;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Called with each error and the shards of its database. Default: errors are ignored, because notifications only save time. */
  readonly onError?: (error: unknown, shards: readonly ShardIdentifier[]) => void;
}): () => void {
  const { databases, executor, clock = systemClock, onError = () => undefined } = options;
  const byShard = new Map<unknown, CommitNotifications>();
  for (const { store, shards } of databases.deliveries()) {
    const tell = quiet((error) => onError(error, shards));
    const notifications = new CommitNotifications({
      channel: store.notifications,
      intervalMs: notifyCoalesceMs,
      clock,
      onError: tell,
    });
    for (const shard of shards) byShard.set(shard, notifications);
  }
  const ignore = executor.onCommit((shard) => byShard.get(shard)?.notify());
  return () => {
    ignore();
    for (const notifications of byShard.values()) notifications.stop();
  };
}

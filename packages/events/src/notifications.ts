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

/** Tells other processes that something was committed: at once, then at most once per interval. */
export class CommitNotifications {
  readonly #channel: Pick<NotificationChannel, 'notify'>;
  readonly #intervalMs: number;
  readonly #clock: Clock;
  readonly #onError: (error: unknown) => void;
  #lastMs = -Infinity;
  #pending = false;
  #sending = false;
  readonly #stopped = new AbortController();

  constructor(options: {
    readonly channel: Pick<NotificationChannel, 'notify'>;
    readonly intervalMs: number;
    readonly clock: Clock;
    readonly onError: (error: unknown) => void;
  }) {
    this.#channel = options.channel;
    this.#intervalMs = options.intervalMs;
    this.#clock = options.clock;
    this.#onError = options.onError;
  }

  /** Returns at once, whatever becomes of the notification: nobody's commit waits for it. */
  notify(): void {
    this.#pending = true;
    // For whoever commits meanwhile as well.
    if (!this.#sending) outsideRequests(() => void this.#send());
  }

  stop(): void {
    this.#stopped.abort();
  }

  /** One at a time, so that a database that does not answer holds one statement and not many. */
  async #send(): Promise<void> {
    this.#sending = true;
    while (this.#pending && !this.#stopped.signal.aborted) {
      const waitMs = this.#lastMs + this.#intervalMs - this.#clock.elapsedMs();
      if (waitMs > 0) await this.#clock.sleep(waitMs, this.#stopped.signal);
      this.#lastMs = this.#clock.elapsedMs();
      // What is committed from here on is not covered by this notification any more.
      this.#pending = false;
      if (this.#stopped.signal.aborted) break;
      await this.#channel.notify().catch(this.#onError);
    }
    this.#sending = false;
  }
}

/** Calls back at the notifications of other processes until delivery stops; notifications only save time, polling finds everything. */
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
 * Tells other processes of this one's commits, where this one executes actions and delivers nothing itself.
 *
 * @returns what ends it
 */
export function notifyOfCommits(options: {
  readonly databases: Pick<DatabaseRegistry, 'deliveries'>;
  readonly executor: Pick<ActionExecutor, 'onCommit'>;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Takes what went wrong, with the shards of the database; notifications only save time. Default: nothing. */
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

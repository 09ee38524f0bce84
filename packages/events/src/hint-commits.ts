import {
  type ActionExecutor,
  type Clock,
  type DatabaseRegistry,
  type ShardIdentifier,
  systemClock,
} from '@framework/core';
import { deliverySettings } from './delivery-settings.js';
import { quiet } from './quiet.js';
import { CommitHints } from './waking/commit-hints.js';

/**
 * Tells other processes of this one's commits, where this one executes actions and delivers nothing itself.
 *
 * @returns what ends it
 * @throws ConfigurationException `invalid-configuration` when `notifyCoalesceMs` is no whole number within its bounds
 */
export function hintCommits(options: {
  readonly databases: Pick<DatabaseRegistry, 'deliveries'>;
  readonly executor: Pick<ActionExecutor, 'onCommit'>;
  /** Default 20. */
  readonly notifyCoalesceMs?: number;
  /** Default: the computer's clock. */
  readonly clock?: Clock;
  /** Takes what went wrong, with the shards of the database; hints only save time. Default: nothing. */
  readonly onError?: (error: unknown, shards: readonly ShardIdentifier[]) => void;
}): () => void {
  const { databases, executor, clock = systemClock, onError = () => undefined, ...settings } = options;
  const { notifyCoalesceMs: intervalMs } = deliverySettings(settings);
  const byShard = new Map<unknown, CommitHints>();
  for (const { store, shards } of databases.deliveries()) {
    const tell = quiet((error) => onError(error, shards));
    const hints = new CommitHints({ channel: store.hints, intervalMs, clock, onError: tell });
    for (const shard of shards) byShard.set(shard, hints);
  }
  const ignore = executor.onCommit((shard) => byShard.get(shard)?.hint());
  return () => {
    ignore();
    for (const hints of byShard.values()) hints.stop();
  };
}

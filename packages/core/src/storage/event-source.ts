import type { Clock } from '../clock.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { DeliveryLog, DeliveryStore, RetainedLog } from './delivery-store.js';

/** One database and one handler, for which a source is to read the log. */
export interface SourceTarget {
  readonly store: DeliveryStore;
  /** The shards that the database holds. */
  readonly shards: readonly ShardIdentifier[];
  /** The handler's permanent id. */
  readonly handler: string;
  readonly clock: Clock;
  /** Larger events come without payload and params, as from {@link DeliveryLog.read}. */
  readonly eventBytesMax: number;
  /** How often it compares what it knows with the store, in milliseconds. */
  readonly checkMs: number;
  /** Called when there may be something to read; never throws. */
  readonly onCommitted: () => void;
  /** Called with each new reason why the source does not work as it should; never throws. */
  readonly onError: (error: unknown) => void;
}

/** What a source reads for one handler from one database. */
export interface EventFeed {
  /** Reads what follows a cursor, with the promises of {@link DeliveryLog.read}. */
  readonly log: Pick<DeliveryLog, 'read'>;
  /** Whether it calls `onCommitted` by itself at each commit, so that polling would only cost time. */
  readonly isLive: boolean;
  /** Ends it, and releases what it holds in the database. */
  close(): Promise<void>;
}

/**
 * Port: where a handler's events come from, if not from polling the log.
 *
 * A source only reads. Leases, cursors and blocked events stay in the store, and whatever happens to the source, the store's log can
 * be read instead from any cursor.
 */
export interface EventSource {
  /** Begins at once, in the background; called once for each database of a delivery. */
  open(target: SourceTarget): EventFeed;
  /** How it is doing, for each database. */
  readonly states: readonly EventSourceState[];
}

/** How a source is doing at one database. */
export interface EventSourceState {
  readonly shards: readonly ShardIdentifier[];
  /** `streaming`: commits arrive by themselves. `by-cursor`: the log is polled instead; nothing is lost by that. */
  readonly kind: 'streaming' | 'by-cursor';
  /** Why the log is polled; `undefined` while streaming. */
  readonly reason: string | undefined;
  /** What the server keeps for the source, when that was last checked; `undefined` before that, or when there is none. */
  readonly slot: RetainedLog | undefined;
}

import type { StartFrom } from '@framework/core';
import type { HandlerRetry } from './handler-retry.js';

/** What a handler declares of itself; what it leaves out, the settings of the delivery say. */
export interface EventHandlerOptions {
  /** Durable and unique: cursors, parked events and idempotency keys are kept under it. At most 100 characters. */
  readonly name: string;
  /** Names that the handler had before: it takes over where they stand. Default: none. */
  readonly aliases?: readonly string[];
  /** Where the handler starts when it is new; a time is in the years 1 to 9999. Default `'now'`. */
  readonly startFrom?: StartFrom;
  /** How failed attempts are repeated. Default: 10 attempts, backoff with full jitter from 500 ms to 5 min, after outages to 5 s. */
  readonly retry?: Partial<HandlerRetry>;
  /** How long one call may take. Default 30,000. */
  readonly timeoutMs?: number;
  /** How many models (for a batch handler: slots) are handled side by side, per database. Default 16. */
  readonly concurrency?: number;
  /** For a batch handler: how many events it receives at most. Default 1,000. */
  readonly batchMax?: number;
  /**
   * For a batch handler: what becomes of a batch that fails.
   *
   * `'park'` (default): its events are parked, and tried one by one. `'wait'`: the same events are tried again with
   * the backoff of outages, for as long as it takes, and their slot waits; for what is down as a whole, such as a broker.
   */
  readonly whenBatchFails?: 'park' | 'wait';
}

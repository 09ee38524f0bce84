import type { HandledEvent } from '../idempotency/handled-event.js';
import type { RetryPolicy } from './retry-policy.js';

/** How one execution differs from the executor's defaults. */
export interface ExecutionConfiguration {
  /** Whether the plan may span shards, one transaction each. Default false. */
  readonly allowCrossShard?: boolean;
  /** Whether the plan may be written together with those of concurrent executions. Default: as the executor does. */
  readonly groupCommit?: boolean;
  /** What to change in the executor's retry policy for this execution. */
  readonly retry?: Partial<RetryPolicy>;
  /** Texts to write with every event, such as correlation and causation ids; trace context is added by itself. */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Makes repeats harmless: the key is stored with the effect, and the same request under the same key resolves with
   * the first one's result and writes nothing. 1 to 255 characters; keys of different principals are different.
   *
   * Needs an action that declares the schema of its result, or has none, and cannot go with `allowCrossShard`.
   */
  readonly idempotencyKey?: string;
  /**
   * Where another request under the key is looked for before the action is performed: in every database, or nowhere,
   * because the key is made from what it asks for and never used for anything else. In either case one shard holds a
   * key once, and where the same request may have been recorded is asked before its commit. Default `everywhere`.
   */
  readonly idempotencyKeySearch?: 'everywhere' | 'nowhere';
  /**
   * The event for which a handler executes the action; set by delivery. The key is then one of handlers: no client can
   * use it, and it is kept until the event cannot be delivered again.
   */
  readonly handledEvent?: HandledEvent;
  /** Called before the execution resolves, when its result is that of an earlier one. */
  readonly onReplayed?: () => void;
}

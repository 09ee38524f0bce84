import type { RetryPolicy } from './retry-policy.js';

/** How one execution differs from the executor's defaults. */
export interface ExecutionConfiguration {
  /** Whether the plan may span shards, one transaction each. Default false. */
  readonly allowCrossShard?: boolean;
  /** What to change in the executor's retry policy for this execution. */
  readonly retry?: Partial<RetryPolicy>;
  /** Texts to write with every event, such as correlation and causation ids; trace context is added by itself. */
  readonly headers?: Readonly<Record<string, string>>;
}

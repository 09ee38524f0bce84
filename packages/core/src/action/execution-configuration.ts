import type { OptionNames, RetryPolicy } from '../config/settings.js';
import type { HandledEvent } from '../storage/idempotency-keys.js';

/** How one execution differs from the executor's defaults. */
export interface ExecutionConfiguration {
  /** Whether the plan may span shards, one transaction each. Default false. */
  readonly allowCrossShard?: boolean;
  /** Whether the plan may be written together with those of concurrent executions. Default: the executor's setting. */
  readonly groupCommit?: boolean;
  /** What to change in the executor's retry policy for this execution. */
  readonly retry?: Partial<RetryPolicy>;
  /** Texts to write with every event, such as correlation and causation ids; trace context is added automatically. */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Makes repeats harmless: the key is stored with the effect, and the same request under the same key resolves with the first
   * one's result and writes nothing. 1 to 255 characters; keys of different principals are different.
   *
   * The action must declare its result, or have none. A key cannot be combined with `allowCrossShard`.
   */
  readonly idempotencyKey?: string;
  /**
   * Whether every database is searched for another request under the key before the action is performed. False saves this search,
   * for keys that are derived from the request and never used for anything else. In either case a shard stores a key only once,
   * and before the commit, the shards that may have recorded the same request are asked. Default true.
   */
  readonly checkKeyEverywhere?: boolean;
  /**
   * The event for which a handler executes the action; set by delivery. The key is then one of handlers: no client can
   * use it, and it is kept until the event cannot be delivered again.
   */
  readonly handledEvent?: HandledEvent;
  /** Called before the execution resolves, when its result is that of an earlier one. If it throws, the process gets a warning. */
  readonly onReplayed?: () => void;
}

export const executionConfigurationNames: OptionNames<ExecutionConfiguration> = {
  allowCrossShard: true,
  groupCommit: true,
  retry: true,
  headers: true,
  idempotencyKey: true,
  checkKeyEverywhere: true,
  handledEvent: true,
  onReplayed: true,
};

/** Has one method for each option of {@link ExecutionConfiguration}; each returns a new builder, in which the option is set. */
export type ExecutionConfigurationBuilder = {
  readonly [Name in keyof ExecutionConfiguration]-?: (
    value: NonNullable<ExecutionConfiguration[Name]>,
  ) => ExecutionConfigurationBuilder;
} & {
  /** Returns the configuration, to pass to `execute`. */
  build(): ExecutionConfiguration;
};

/** Builds the configuration of an execution step by step; a plain object does the same. */
export const ExecutionConfiguration: {
  readonly Builder: { executionConfiguration(): ExecutionConfigurationBuilder };
} = { Builder: { executionConfiguration: () => builderOf({}) } };

function builderOf(configuration: ExecutionConfiguration): ExecutionConfigurationBuilder {
  const setters = Object.keys(executionConfigurationNames).map((name) => [
    name,
    (value: unknown) => builderOf({ ...configuration, [name]: value }),
  ]);
  return { ...Object.fromEntries(setters), build: () => configuration } as ExecutionConfigurationBuilder;
}

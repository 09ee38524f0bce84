import type { ActionClass, ExecutionConfiguration, Principal } from '@framework/core';

/**
 * How one execution by a handler differs from the executor's defaults. It has a key, and so it cannot go across shards: each step
 * of a saga is an action on one.
 */
export interface HandlerExecution extends Omit<
  ExecutionConfiguration,
  'idempotencyKey' | 'handledEvent' | 'allowCrossShard'
> {
  /** Tells several executions of one action for one event apart. Default: none, so that there is one. */
  readonly key?: string;
  /** Who asks. Default: the principal of the event. */
  readonly principal?: Principal;
}

/** What a handler may use besides the event: actions, and the signal that tells it to stop. */
export interface HandlerContext {
  /** Which attempt this is, from 1. */
  readonly attempt: number;
  /** Aborted when the handler has run for its `timeoutMs`, or when another process took its events over. */
  readonly signal: AbortSignal;
  /**
   * Executes an action at most once for this handler and event, however often the event is delivered.
   *
   * A repeat must ask for the same: make the params from the event alone. The idempotency key is made of the handler's
   * permanent id, the event's id, the action's durable name and `key`; in a batch, the id is that of the first event, and the key
   * holds for as long as the batch is cut the same: pass ids of events as `key`.
   *
   * @throws the signal's reason when it is aborted: a handler that was given up begins no more effects; what it has begun may
   * still be committed, within the deadlines of its statements and attempts
   * @throws whatever the executor throws
   */
  execute<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    configuration?: HandlerExecution,
  ): Promise<Result>;
}

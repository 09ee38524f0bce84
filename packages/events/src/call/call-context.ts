import {
  type ActionClass,
  type ActionExecutor,
  type DeliverableEvent,
  type ExecutionConfiguration,
  type ShardIdentifier,
  actionNameOf,
} from '@framework/core';
import type { HandlerContext, HandlerExecution } from '../handler/handler-context.js';

/** What one call of a handler may use, until it is given up. */
export class CallContext implements HandlerContext {
  readonly attempt: number;
  readonly #handler: string;
  readonly #event: DeliverableEvent;
  readonly #shard: ShardIdentifier;
  readonly #executor: Pick<ActionExecutor, 'execute'>;
  #controller: AbortController | undefined;
  #aborted: { readonly reason: unknown } | undefined;

  /**
   * @param handler its permanent id in the database of the event
   * @param shard that of the event
   */
  constructor(
    handler: string,
    event: DeliverableEvent,
    shard: ShardIdentifier,
    attempt: number,
    executor: Pick<ActionExecutor, 'execute'>,
  ) {
    this.#handler = handler;
    this.#event = event;
    this.#shard = shard;
    this.attempt = attempt;
    this.#executor = executor;
  }

  /** Made when it is asked for: most handlers never do, and they are called very often. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#aborted !== undefined) this.#controller.abort(this.#aborted.reason);
    return this.#controller.signal;
  }

  /** Gives the call up. */
  abort(reason: unknown): void {
    this.#aborted = { reason };
    this.#controller?.abort(reason);
  }

  async execute<Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
    { key, principal, ...configuration }: HandlerExecution = {},
  ): Promise<Result> {
    if (this.#aborted !== undefined) throw this.#aborted.reason;
    const { id, headers } = this.#event;
    const parts = [this.#handler, id, actionNameOf(action), ...(key === undefined ? [] : [key])];
    const keyed: ExecutionConfiguration = {
      ...configuration,
      headers: { ...headers, 'causation-id': id, ...configuration.headers },
      idempotencyKey: parts.join('/'),
      handledEvent: { handler: this.#handler, eventId: id, shard: this.#shard },
    };
    return this.#executor.execute(principal ?? { name: this.#event.principal }, action, params, keyed);
  }
}

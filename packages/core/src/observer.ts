import type { ShardIdentifier } from './id/shard-identifier.js';

/** What executors, deliveries and relays do. */
export type Operation =
  /** An execution, with all its attempts. */
  | { readonly kind: 'execute'; readonly action: string }
  /** The policy and `perform` of one attempt, numbered from 1. */
  | { readonly kind: 'perform'; readonly action: string; readonly attempt: number }
  /** A read of models by their ids in an attempt; it may share its statement with reads of others. */
  | { readonly kind: 'read'; readonly model: string; readonly count: number }
  /** The commit of what an attempt has staged, on one shard or, if that is allowed, on several. */
  | {
      readonly kind: 'persist';
      readonly action: string;
      readonly shards: readonly ShardIdentifier[];
      readonly eventCount: number;
    }
  /** A statement that writes the plans of several executions together. */
  | { readonly kind: 'write-group'; readonly shard: ShardIdentifier; readonly planCount: number }
  /** A call of a handler, with one event or a batch. */
  | {
      readonly kind: 'handle';
      readonly handler: string;
      readonly attempt: number;
      readonly isBatch: boolean;
      readonly events: readonly ObservedEvent[];
    }
  /** A call of a relay's broker, within a call of the relay as a handler. */
  | { readonly kind: 'publish'; readonly relay: string; readonly messageCount: number };

/** What an observer may know about an event. */
export interface ObservedEvent {
  readonly id: string;
  readonly type: string;
  readonly modelName: string;
  readonly modelId: string;
  /** The trace context of the execution that has made it, and the caller's headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** When it was made. */
  readonly createdDate: Date;
}

/** Port: sees what executors, deliveries and relays do, to trace and to measure it. */
export interface Observer {
  /**
   * Calls `run` once, at once, and returns what it returns. What belongs to the operation is observed within `run`, in its async
   * context; groups and calls of handlers are parts of no other operation.
   *
   * An observer cannot change an operation, which succeeds, fails and takes as long as without one. An observer that throws, or
   * does not call `run` before it returns, causes a warning of the process, the first time; its operation runs nevertheless.
   */
  observe<T>(operation: Operation, run: () => Promise<T>): Promise<T>;
}

/** Runs an operation, and lets an observer see it if there is one. */
export type Observe = Observer['observe'];

/**
 * Makes what an executor, a delivery or a relay calls for each of its operations. Its outcome is always that of `run`, which is
 * called once: a commit must not look as if it had failed, nor one that was never made as if it had succeeded.
 */
export function observeWith(observer: Observer | undefined): Observe {
  if (observer === undefined) return (_operation, run) => run();
  let hasWarned = false;
  const warn = (kind: Operation['kind'], cause: unknown): void => {
    if (hasWarned) return;
    hasWarned = true;
    const message = `The observer has failed in an operation of kind ${kind}, which was not changed by that; later failures are not reported`;
    process.emitWarning(Object.assign(new Error(message, { cause }), { name: 'FrameworkWarning' }));
  };
  return (operation, run) => {
    const observed = new ObservedRun(run);
    const begin = () => observed.begin();
    let seen: unknown;
    try {
      seen = observer.observe(operation, begin);
      if (!observed.hasBegun) warn(operation.kind, new Error('It has not called run before it returned'));
    } catch (error) {
      warn(operation.kind, error);
    }
    const outcome = observed.begin();
    if (seen !== outcome)
      // Not `Promise.resolve`, which looks at a promise of others at once, and throws what that throws.
      new Promise((resolve) => resolve(seen)).catch((error: unknown) =>
        outcome.then(
          () => warn(operation.kind, error),
          (failure: unknown) => failure === error || warn(operation.kind, error),
        ),
      );
    return outcome;
  };
}

/** An operation that begins once, whoever begins it. */
class ObservedRun<T> {
  readonly #run: () => Promise<T>;
  #outcome: Promise<T> | undefined;

  constructor(run: () => Promise<T>) {
    this.#run = run;
  }

  get hasBegun(): boolean {
    return this.#outcome !== undefined;
  }

  begin(): Promise<T> {
    return (this.#outcome ??= this.#start());
  }

  /** Rejects with what `run` throws at once, so that it is not called again. */
  #start(): Promise<T> {
    try {
      return this.#run();
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

/**
 * Calls a function of the application that is notified of something which has already happened. So its error must not reach the
 * caller: whether it is thrown at once or later, it becomes a warning of the process.
 *
 * @param message says what has failed, and what it does not change
 */
export function callSafely(call: () => unknown, message: string): void {
  new Promise((resolve) => resolve(call())).catch((cause: unknown) => {
    const warning = new Error(message, { cause });
    process.emitWarning(Object.assign(warning, { name: 'FrameworkWarning' }));
  });
}

import { type ShardIdentifier, TransientStorageError } from '@framework/core';
import type { ChangeSet, DeliveryStore, PersistOptions } from '@framework/core/adapter';

/**
 * The operations of a database in memory: reads of repositories, writes of a plan or a group, questions about the
 * outcome of a write, the end of a transaction, operations on keys and the log, readiness checks, a notification on its
 * way to this process, and every method of the delivery store.
 */
export type MemoryOperation =
  | 'read'
  | 'persist'
  | 'persist-all'
  | 'is-committed'
  | 'commit'
  | 'find-key'
  | 'delete-expired-keys'
  | 'find-handler-keys'
  | 'delete-keys'
  | 'find-events'
  | 'ready'
  | 'ping'
  | 'notifications.hear'
  | StoreMethod;

/** A request to a database in memory. */
export interface MemoryRequest {
  readonly operation: MemoryOperation;
  /** The shard of the request. For operations of a whole database, such as those of delivery, its first shard. */
  readonly shard: ShardIdentifier;
  /** The change sets of `persist` and `persist-all`; unset for others. */
  readonly changes?: readonly ChangeSet[];
  /** The options of `persist`. */
  readonly options?: PersistOptions | undefined;
  /** How long `find-key` may take before the shard counts as unavailable. Default: as long as any statement. */
  readonly waitMs?: number | undefined;
}

/**
 * One direction of a request: `request` before anything is done, `answer` when it is done and the caller does not know
 * yet. Nothing else runs between the two. A notification has no answer.
 */
export interface MemoryMessage extends MemoryRequest {
  readonly way: 'request' | 'answer';
  /** In the direction `answer`: the database's error if nothing was done, such as a StaleRecordError. */
  readonly error: unknown;
}

/**
 * Decides what happens to a request or an answer on its way. It arrives when the promise resolves, or at once without a
 * promise. The connection is lost if the promise rejects with {@link ConnectionLostError}. If the promise never settles,
 * nothing more happens.
 */
export type MemoryFault = (message: MemoryMessage) => Promise<void> | undefined;

/**
 * Thrown by a fault to lose the connection. A read then fails with `transient-storage`, and the outcome of a write is
 * unknown, whether the request or the answer was lost. Any other error, such as a ShardUnavailableError, counts as an
 * error of the storage.
 */
export class ConnectionLostError extends Error {
  /** Resolves when the request arrives after all; `undefined` if it never does. */
  readonly arrival: Promise<void> | undefined;
  /** Called when such a late request has been carried out. */
  readonly onDone: (() => void) | undefined;

  /**
   * @param options.arrival for a request: when it resolves, the request is carried out, although nobody gets the
   * answer. Questions about the outcome of the write wait for it
   * @param options.onDone called when the late request was carried out without an error
   */
  constructor(options: { readonly arrival?: Promise<void>; readonly onDone?: () => void } = {}) {
    super('the connection was lost');
    this.arrival = options.arrival;
    this.onDone = options.onDone;
  }
}

/**
 * The faults on the way from one process to databases in memory: messages may be slow, and requests and answers may be
 * lost. By default there are none.
 *
 * ```ts
 * const faults = new MemoryFaults();
 * const databases = openDatabases(memorySharding(shard), memory({ faults }));
 * // Delays the answer to every read, so that others commit in between.
 * faults.inject(({ operation, way }) =>
 *   operation === 'read' && way === 'answer' ? clock.sleep(100) : undefined,
 * );
 * ```
 */
export class MemoryFaults {
  #fault: MemoryFault | undefined;
  #isDead = false;

  constructor(fault?: MemoryFault) {
    this.#fault = fault;
  }

  /** Sends every later message through a fault, or through none. */
  inject(fault: MemoryFault | undefined): void {
    this.#fault = fault;
  }

  /** Ends the process: none of its requests is carried out or answered any more, and it hears no notifications. */
  kill(): void {
    this.#isDead = true;
  }

  /** Whether the process has ended. */
  get isDead(): boolean {
    return this.#isDead;
  }

  /**
   * Runs some work of the database, including the messages there and back.
   *
   * @throws ConnectionLostError when a fault loses the connection
   * @throws any error of the work or of another fault
   */
  async call<T>(request: MemoryRequest, work: () => T): Promise<T> {
    try {
      // As with a real database, other requests may overtake this one.
      await this.#pass(request, 'request');
    } catch (error) {
      if (error instanceof ConnectionLostError) {
        const doLate = (): void => {
          work();
          error.onDone?.();
        };
        void error.arrival?.then(doLate).catch(() => undefined);
      }
      throw error;
    }
    if (this.#isDead) return silence();
    const answer = answerOf(work);
    if (this.#fault !== undefined) await this.#pass(request, 'answer', answer.error);
    // The process may have been killed while it waited.
    if (this.#isDead) return silence();
    if (answer.isDone) return answer.result;
    throw answer.error;
  }

  /** Like {@link call}, for requests that can be repeated: a lost connection is reported as `transient-storage`. */
  async ask<T>(request: MemoryRequest, work: () => T): Promise<T> {
    try {
      return await this.call(request, work);
    } catch (error) {
      if (!(error instanceof ConnectionLostError)) throw error;
      throw new TransientStorageError(request.shard, error.message, { cause: error });
    }
  }

  /** Passes a notification to the process, unless it is lost on its way. */
  async hear(shard: ShardIdentifier, onNotification: () => void): Promise<void> {
    try {
      await this.#pass({ operation: 'notifications.hear', shard }, 'request');
    } catch (error) {
      if (error instanceof ConnectionLostError) return;
      throw error;
    }
    if (!this.#isDead) onNotification();
  }

  #pass(request: MemoryRequest, way: MemoryMessage['way'], error?: unknown): Promise<void> | undefined {
    return this.#isDead ? silence() : this.#fault?.({ ...request, way, error });
  }
}

/** The answer to a dead process: none. */
function silence(): Promise<never> {
  return new Promise(() => undefined);
}

type Answer<T> =
  | { readonly isDone: true; readonly result: T; readonly error?: undefined }
  | { readonly isDone: false; readonly error: unknown };

function answerOf<T>(work: () => T): Answer<T> {
  try {
    return { isDone: true, result: work() };
  } catch (error) {
    return { isDone: false, error };
  }
}

/** A method of one of the store's ports, such as `blocked.block`. */
export type StoreMethod = {
  [Port in keyof DeliveryStore]-?: NonNullable<DeliveryStore[Port]> extends object
    ? `${Port}.${keyof NonNullable<DeliveryStore[Port]> & string}`
    : never;
}[keyof DeliveryStore];

import { type ShardIdentifier, TransientStorageError } from '@framework/core';
import type { ChangeSet, DeliveryStore, PersistOptions } from '@framework/core/adapter';

/**
 * What is asked of a database in memory: whatever a repository reads, a write of one plan or of a group, what became of a
 * write, the end of a transaction, what concerns keys and the log, whether it serves, a notification on its way to this process, and
 * every method of delivery's store.
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

/** One question to a database in memory. */
export interface MemoryRequest {
  readonly operation: MemoryOperation;
  /** The shard that is asked; of a database's own operations, such as delivery's, the first one there. */
  readonly shard: ShardIdentifier;
  /** What is to be written by `persist` and `persist-all`; nothing for others. */
  readonly changes?: readonly ChangeSet[];
  /** How `persist` writes that. */
  readonly options?: PersistOptions | undefined;
  /** How long `find-key` may take, where less than a statement's timeout will do: then the shard is unavailable. */
  readonly waitMs?: number | undefined;
}

/**
 * One way of one question: `request` before anything is done, `answer` when it is done and nobody knows yet. Between the two
 * nothing else runs. A notification has no answer.
 */
export interface MemoryPassage extends MemoryRequest {
  readonly way: 'request' | 'answer';
  /** Why nothing was done, on the way of the answer: what the database says, such as a StaleRecordError. */
  readonly error: unknown;
}

/**
 * What happens on the way: it takes as long as the promise does, and the connection is lost when it throws {@link ConnectionLostError}.
 * Of a promise that never resolves, nothing follows any more.
 */
export type MemoryFault = (passage: MemoryPassage) => Promise<void> | undefined;

/**
 * Thrown by a fault to lose the connection: a read fails as `transient-storage`, and the outcome of a write is unknown, whether
 * its request was lost or its answer. Any other error is what the storage says, such as a ShardUnavailableError.
 */
export class ConnectionLostError extends Error {
  /** When the request arrives all the same; `undefined` if never. */
  readonly arrival: Promise<void> | undefined;
  /** Called when what arrived so was done. */
  readonly onDone: (() => void) | undefined;

  /**
   * @param options.arrival of a request: it is done when this resolves, although nobody gets the answer. Whoever asks what
   * became of a write waits for it
   * @param options.onDone called at once when it was done, and has not thrown
   */
  constructor(options: { readonly arrival?: Promise<void>; readonly onDone?: () => void } = {}) {
    super('the connection was lost');
    this.arrival = options.arrival;
    this.onDone = options.onDone;
  }
}

/**
 * How the way from one process to databases in memory misbehaves: it is slow, or loses requests and answers. By default it
 * does neither.
 *
 * ```ts
 * const faults = new MemoryFaults();
 * const databases = openDatabases(memorySharding(shard), memory({ faults }));
 * // Every read gets its answer late, so that others commit in between.
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

  /** Lets every passage from now on go through a fault, or through none. */
  inject(fault: MemoryFault | undefined): void {
    this.#fault = fault;
  }

  /** Ends the process: nothing that it asks for is done or answered any more, and it hears no notifications. */
  kill(): void {
    this.#isDead = true;
  }

  /** Whether the process has ended. */
  get isDead(): boolean {
    return this.#isDead;
  }

  /**
   * Does some work of the database, with the ways to it and back.
   *
   * @throws ConnectionLostError when a fault does, and what the work or another fault throws
   */
  async call<T>(request: MemoryRequest, work: () => T): Promise<T> {
    try {
      // As with a database, others may be faster between a question and its answer.
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
    // It may have been killed while it waited.
    if (this.#isDead) return silence();
    if (answer.isDone) return answer.result;
    throw answer.error;
  }

  /** Asks for something that can be asked again: throws as {@link call}, but a lost connection is `transient-storage`. */
  async ask<T>(request: MemoryRequest, work: () => T): Promise<T> {
    try {
      return await this.call(request, work);
    } catch (error) {
      if (!(error instanceof ConnectionLostError)) throw error;
      throw new TransientStorageError(request.shard, error.message, { cause: error });
    }
  }

  /** Lets the process hear a notification, unless it is lost on its way. */
  async hear(shard: ShardIdentifier, onNotification: () => void): Promise<void> {
    try {
      await this.#pass({ operation: 'notifications.hear', shard }, 'request');
    } catch (error) {
      if (error instanceof ConnectionLostError) return;
      throw error;
    }
    if (!this.#isDead) onNotification();
  }

  #pass(request: MemoryRequest, way: MemoryPassage['way'], error?: unknown): Promise<void> | undefined {
    return this.#isDead ? silence() : this.#fault?.({ ...request, way, error });
  }
}

/** What the dead are answered. */
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
  [Port in keyof DeliveryStore]: DeliveryStore[Port] extends object
    ? `${Port}.${keyof DeliveryStore[Port] & string}`
    : never;
}[keyof DeliveryStore];

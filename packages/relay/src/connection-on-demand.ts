/** How the connections to one broker are opened and ended. */
interface ConnectionOptions<C> {
  /** @param late aborted when nobody waits for the connection any more: what is open by then must be destroyed */
  readonly open: (late: AbortSignal) => Promise<C>;
  readonly isOpen: (connection: C) => boolean;
  /** Ends a connection once everything that was sent is answered. */
  readonly end: (connection: C) => Promise<void>;
  /** Ends a connection at once, without waiting for a broker that may be silent. */
  readonly destroy: (connection: C) => void;
  /** How long opening it, ending it, and each answer may take, in milliseconds. */
  readonly timeoutMs: number;
}

/**
 * A connection that is opened when it is first needed, and reopened when it has ended. One on which the broker was silent for
 * too long is destroyed: the broker may be there again, while nothing arrives on this connection ever after. One on which a single answer
 * is missing is replaced, and ends when the others have arrived.
 */
export class ConnectionOnDemand<C extends object> {
  readonly #options: ConnectionOptions<C>;
  /** When the last answer arrived on each connection. */
  readonly #answeredMs = new WeakMap<C, number>();
  /** Those on which nothing more is sent, with the timers that destroy them. */
  readonly #retired = new Map<C, NodeJS.Timeout>();
  #current: Promise<C> | undefined;
  #closed = false;

  constructor(options: ConnectionOptions<C>) {
    this.#options = options;
  }

  /** @throws what opening it throws; the next call tries again */
  async get(): Promise<C> {
    for (;;) {
      if (this.#closed) throw new Error('This broker was closed: create a new one');
      const current = (this.#current ??= this.#opened());
      try {
        const connection = await current;
        if (this.#options.isOpen(connection) && !this.#retired.has(connection)) return connection;
      } catch (error) {
        this.#forget(current);
        throw error;
      }
      this.#forget(current);
    }
  }

  /**
   * Waits for what the broker answers on a connection.
   *
   * @param isProbe whether it says nothing about answers to what is published, because it arrives in another way. Default false
   * @throws Error when there is no answer in time; then the connection is destroyed, or retired if others have arrived on it meanwhile
   */
  async answer<T>(connection: C, work: Promise<T>, isProbe = false): Promise<T> {
    const { destroy, timeoutMs } = this.#options;
    const begunMs = performance.now();
    try {
      const answer = await inTime(work, timeoutMs);
      if (!isProbe) this.#answeredMs.set(connection, performance.now());
      return answer;
    } catch (error) {
      const answeredMs = this.#answeredMs.get(connection) ?? -Infinity;
      if (error instanceof NoAnswerError) {
        if (answeredMs < begunMs || this.#closed) destroy(connection);
        else this.#retire(connection);
      }
      throw error;
    }
  }

  async close(): Promise<void> {
    const { isOpen, end, destroy } = this.#options;
    this.#closed = true;
    for (const [connection, timer] of this.#retired) {
      clearTimeout(timer);
      destroy(connection);
    }
    this.#retired.clear();
    const current = await this.#current?.catch(() => undefined);
    // A broker that does not answer keeps nobody from closing: the connection is destroyed then.
    if (current !== undefined && isOpen(current))
      await this.answer(current, end(current)).catch(() => undefined);
  }

  /**
   * Sends nothing more on a connection, and lets what was sent be answered: a client keeps everything that it sends behind an answer that is
   * missing.
   */
  #retire(connection: C): void {
    if (this.#retired.has(connection)) return;
    const { destroy, timeoutMs } = this.#options;
    const end = (): void => {
      this.#retired.delete(connection);
      destroy(connection);
    };
    this.#retired.set(connection, setTimeout(end, timeoutMs));
  }

  async #opened(): Promise<C> {
    const { open, timeoutMs } = this.#options;
    const late = new AbortController();
    const opening = open(late.signal);
    try {
      return await inTime(opening, timeoutMs);
    } catch (error) {
      if (error instanceof NoAnswerError) {
        late.abort(error);
        void this.#discard(opening);
      }
      throw error;
    }
  }

  /** Destroys a connection that is opened too late, if it is opened at all. */
  async #discard(opening: Promise<C>): Promise<void> {
    const connection = await opening.catch(() => undefined);
    if (connection !== undefined) this.#options.destroy(connection);
  }

  /** Forgets a connection that has ended, unless another caller has already replaced it. */
  #forget(ended: Promise<C>): void {
    if (this.#current === ended) this.#current = undefined;
  }
}

/** A broker that was silent for too long. */
export class NoAnswerError extends Error {
  override readonly name = 'NoAnswerError';
}

async function inTime<T>(work: Promise<T>, timeoutMs: number): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => reject(new NoAnswerError(`The broker has not answered within ${timeoutMs} ms`)),
    timeoutMs,
  );
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

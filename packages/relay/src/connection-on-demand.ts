/** A connection that is opened when it is first needed, and reopened when it has ended. */
export class ConnectionOnDemand<C> {
  readonly #open: () => Promise<C>;
  readonly #isOpen: (connection: C) => boolean;
  readonly #end: (connection: C) => Promise<void>;
  #current: Promise<C> | undefined;
  #closed = false;

  constructor(options: {
    readonly open: () => Promise<C>;
    readonly isOpen: (connection: C) => boolean;
    readonly end: (connection: C) => Promise<void>;
  }) {
    this.#open = options.open;
    this.#isOpen = options.isOpen;
    this.#end = options.end;
  }

  /** @throws what opening it throws; the next call tries again */
  async get(): Promise<C> {
    for (;;) {
      if (this.#closed) throw new Error('This broker was closed: create a new one');
      const current = (this.#current ??= this.#open());
      try {
        const connection = await current;
        if (this.#isOpen(connection)) return connection;
      } catch (error) {
        this.#forget(current);
        throw error;
      }
      this.#forget(current);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const current = await this.#current?.catch(() => undefined);
    if (current !== undefined && this.#isOpen(current)) await this.#end(current);
  }

  /** Forgets a connection that has ended, unless another caller has already replaced it. */
  #forget(ended: Promise<C>): void {
    if (this.#current === ended) this.#current = undefined;
  }
}

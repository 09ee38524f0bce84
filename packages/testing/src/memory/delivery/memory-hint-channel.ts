import type { HintChannel } from '@framework/core';
import type { MemoryAccess } from './memory-access.js';

/** Hints between processes that share a database in memory. */
export class MemoryHintChannel implements HintChannel {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  notify(): Promise<void> {
    return this.#access.answer('hints.notify', ({ listeners, writes }) => {
      writes.notifies++;
      for (const listener of listeners) listener();
    });
  }

  listen(onHint: () => void): Promise<() => Promise<void>> {
    return this.#access.answer('hints.listen', ({ listeners }) => {
      listeners.add(onHint);
      return async () => {
        listeners.delete(onHint);
      };
    });
  }
}

import type { HintChannel } from '@framework/core';
import type { MemoryAccess } from './memory-access.js';

/** Hints between processes that share a database in memory. */
export class MemoryHintChannel implements HintChannel {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  notify(): Promise<void> {
    return this.#access.answer('hints.notify', (tables) => {
      tables.writes.notifies++;
      tables.hint();
    });
  }

  listen(onHint: () => void): Promise<() => Promise<void>> {
    return this.#access.answer('hints.listen', () => {
      const end = this.#access.listen(onHint);
      return async () => end();
    });
  }
}

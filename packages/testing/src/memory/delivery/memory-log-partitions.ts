import type { LogPartitions } from '@framework/core';
import type { MemoryAccess } from './memory-access.js';

/** A log in memory has no partitions. */
export class MemoryLogPartitions implements LogPartitions {
  readonly #access: MemoryAccess;

  constructor(access: MemoryAccess) {
    this.#access = access;
  }

  create(): Promise<void> {
    return this.#access.answer('partitions.create', () => undefined);
  }

  drop(): Promise<readonly string[]> {
    return this.#access.answer('partitions.drop', () => []);
  }
}

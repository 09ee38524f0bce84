import type { IdSource } from '../src/id/uuid-v7.js';

/** An id source whose time a test sets, and whose random bytes are always the same. */
export class FixedIdSource implements IdSource {
  timeMs: number;
  readonly #random: readonly number[];

  constructor(timeMs: number, random: readonly number[] = [0x01, 0x02, 0x03, 0x04, 0x05, 0xff]) {
    this.timeMs = timeMs;
    this.#random = random;
  }

  nowMs(): number {
    return this.timeMs;
  }

  fillRandom(bytes: Uint8Array<ArrayBuffer>): void {
    bytes.set(this.#random);
  }
}

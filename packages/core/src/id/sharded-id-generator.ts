import { stringify } from 'uuid';
import { ShardIdentifier } from '../sharding/shard-identifier.js';
import { type IdSource, currentIdSource } from './id-source.js';

const counterMax = 0xfff;

/**
 * Makes ids that carry their shard, in the order in which it is asked.
 *
 * A UUID version 7 (RFC 9562): 48 bits of milliseconds, version, 12 bits that count within a millisecond
 * (`rand_a`, as in section 6.2, method 1), variant, 8 bits group, 6 bits member, 48 random bits.
 * When the counter is used up, or the clock goes back, the time runs ahead rather than the order breaking.
 */
export class ShardedIdGenerator {
  /** Where the time and the randomness of its ids come from. */
  readonly source: IdSource;
  readonly #bytes = new Uint8Array(16);
  readonly #random = new Uint8Array(6);
  #lastMs = -1;
  #counter = 0;

  /** @param source tests pass their own */
  constructor(source: IdSource = currentIdSource()) {
    this.source = source;
  }

  /**
   * Makes the next id of a shard, as lower-case text.
   *
   * @throws InvalidShardException `invalid-shard` when it is none: its bits would run into others
   */
  next(shard: ShardIdentifier): string {
    ShardIdentifier.of(shard.group, shard.member);
    this.#advance();
    const bytes = this.#bytes;
    this.source.fillRandom(this.#random);
    bytes[0] = this.#lastMs / 2 ** 40;
    bytes[1] = this.#lastMs / 2 ** 32;
    bytes[2] = this.#lastMs / 2 ** 24;
    bytes[3] = this.#lastMs / 2 ** 16;
    bytes[4] = this.#lastMs / 2 ** 8;
    bytes[5] = this.#lastMs;
    bytes[6] = 0x70 | (this.#counter >> 8);
    bytes[7] = this.#counter;
    const placed = 0x8000 | (shard.group << 6) | shard.member;
    bytes[8] = placed >> 8;
    bytes[9] = placed;
    bytes.set(this.#random, 10);
    return stringify(bytes);
  }

  #advance(): void {
    const nowMs = this.source.nowMs();
    if (nowMs > this.#lastMs) {
      this.#lastMs = nowMs;
      this.#counter = 0;
    } else if (this.#counter < counterMax) {
      this.#counter++;
    } else {
      this.#lastMs++;
      this.#counter = 0;
    }
  }
}

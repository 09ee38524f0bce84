import { InvalidShardError } from '../errors/value-errors.js';

const groupMax = 255;
const memberMax = 63;

/**
 * Identifies one shard: a group (a region, a tenant class) and a member within it.
 *
 * Equal shards are the same object, so compare them with `===`.
 */
export class ShardIdentifier {
  static readonly #known = new Map<number, ShardIdentifier>();

  /** 0 to 255. */
  readonly group: number;
  /** 0 to 63. */
  readonly member: number;

  private constructor(group: number, member: number) {
    this.group = group;
    this.member = member;
    Object.freeze(this);
  }

  /**
   * Returns the shard of a group and a member.
   *
   * @throws InvalidShardError `invalid-shard` when the group is not 0–255 or the member not 0–63
   */
  static of(group: number, member: number): ShardIdentifier {
    if (!Number.isInteger(group) || group < 0 || group > groupMax) {
      throw new InvalidShardError('group', group, groupMax);
    }
    if (!Number.isInteger(member) || member < 0 || member > memberMax) {
      throw new InvalidShardError('member', member, memberMax);
    }
    const key = group * (memberMax + 1) + member;
    let shard = ShardIdentifier.#known.get(key);
    if (shard === undefined) {
      shard = new ShardIdentifier(group, member);
      ShardIdentifier.#known.set(key, shard);
    }
    return shard;
  }

  /** Orders shards by group, then by member. A cross-shard action commits in this order. */
  static compare(this: void, one: ShardIdentifier, other: ShardIdentifier): number {
    return one.group - other.group || one.member - other.member;
  }

  /** The shard for messages, such as `shard (0, 1)`. */
  toString(): string {
    return `shard (${this.group}, ${this.member})`;
  }

  /** Both numbers, as {@link ShardIdentifier.of} takes them. */
  toJSON(): { readonly group: number; readonly member: number } {
    return { group: this.group, member: this.member };
  }
}

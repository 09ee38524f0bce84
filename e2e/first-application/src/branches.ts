import { ShardIdentifier } from '@framework/core';

/** The branches of the library, in the order of their groups: the books of each are on a shard of its own. */
export const branches = ['north', 'south'] as const;
export type Branch = (typeof branches)[number];

export function shardOf(branch: Branch): ShardIdentifier {
  return ShardIdentifier.of(branches.indexOf(branch), 0);
}

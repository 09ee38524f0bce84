import { ShardedId } from '../id/sharded-id.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';

/** Params may be deep, and even circular where no schema checks them. */
const depthMax = 8;

/** The shards that an action's params name by ids of their models: where its effect most likely is. */
export function namedShards(params: unknown): ReadonlySet<ShardIdentifier> {
  const shards = new Set<ShardIdentifier>();
  collect(params, shards, 0);
  return shards;
}

function collect(value: unknown, shards: Set<ShardIdentifier>, depth: number): void {
  if (typeof value !== 'object' || value === null || depth > depthMax) return;
  if (value instanceof ShardedId) shards.add(value.resolveShardIdentifier());
  else for (const field of Object.values(value)) collect(field, shards, depth + 1);
}

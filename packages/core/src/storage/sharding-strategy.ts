import { ShardedId } from '../id/id.js';
import type { ShardIdentifier } from '../id/shard-identifier.js';
import type { AnyEntity } from '../model/model.js';

/**
 * Port: decides on which shard a model is stored.
 *
 * Both methods must always give the same answer for a model: rows do not move between shards.
 */
export interface ShardingStrategy<M extends AnyEntity = AnyEntity> {
  /** The shard on which the model is stored. */
  shardOfModel(model: M): ShardIdentifier;
  /**
   * The shard of an id; `undefined` if the id alone does not tell. Then reads by id are refused, and reads by a
   * condition search all shards.
   */
  shardOfId(id: string): ShardIdentifier | undefined;
}

/** The default strategy: the shard that the {@link ShardedId} carries in its bits. */
export class EmbeddedBitsShardingStrategy implements ShardingStrategy {
  shardOfModel(model: AnyEntity): ShardIdentifier {
    return model.id instanceof ShardedId ? model.id.resolveShardIdentifier() : this.shardOfId(model.id.value);
  }

  /** @throws InvalidIdError `invalid-id` when the id is not a UUID version 7 */
  shardOfId(id: string): ShardIdentifier {
    return ShardedId.of(Object, id).resolveShardIdentifier();
  }
}

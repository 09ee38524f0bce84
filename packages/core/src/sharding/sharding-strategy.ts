import { ShardedId } from '../id/sharded-id.js';
import type { AnyEntity } from '../model/model.js';
import type { ShardIdentifier } from './shard-identifier.js';

/**
 * Port: decides on which shard a model's row stands.
 *
 * Both answers must stay the same for the whole life of a model: a row does not move.
 */
export interface ShardingStrategy<M extends AnyEntity = AnyEntity> {
  /** The shard to which the model is written. */
  shardOfModel(model: M): ShardIdentifier;
  /**
   * The shard of an id, or `undefined` where the id alone does not tell: reads by id are then refused, and
   * reads by a condition ask all shards.
   */
  shardOfId(id: string): ShardIdentifier | undefined;
}

/** The default strategy: the shard is the one that the {@link ShardedId} carries in its bits. */
export class EmbeddedBitsShardingStrategy implements ShardingStrategy {
  shardOfModel(model: AnyEntity): ShardIdentifier {
    return model.id instanceof ShardedId ? model.id.resolveShardIdentifier() : this.shardOfId(model.id.value);
  }

  /** @throws InvalidIdError `invalid-id` when the id is not a UUID version 7 */
  shardOfId(id: string): ShardIdentifier {
    return ShardedId.of(Object, id).resolveShardIdentifier();
  }
}

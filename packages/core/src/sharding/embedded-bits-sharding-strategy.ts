import { ShardedId } from '../id/sharded-id.js';
import type { AnyEntity } from '../model/entity.js';
import type { ShardIdentifier } from './shard-identifier.js';
import type { ShardingStrategy } from './sharding-strategy.js';

/** The default strategy: the shard is the one that the {@link ShardedId} carries in its bits. */
export class EmbeddedBitsShardingStrategy implements ShardingStrategy {
  shardOfModel(model: AnyEntity): ShardIdentifier {
    return model.id instanceof ShardedId ? model.id.resolveShardIdentifier() : this.shardOfId(model.id.value);
  }

  /** @throws InvalidIdException `invalid-id` when the id is not a UUID version 7 */
  shardOfId(id: string): ShardIdentifier {
    return ShardedId.of(Object, id).resolveShardIdentifier();
  }
}

import type { AnyEntity } from '../model/entity.js';
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

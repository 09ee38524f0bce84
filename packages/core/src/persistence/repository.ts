import type { AnyEntity } from '../model/entity.js';
import type { ModelClass } from '../model/model-class.js';
import type { ShardIdentifier } from '../sharding/shard-identifier.js';
import type { ShardingStrategy } from '../sharding/sharding-strategy.js';

/** Port: how models of one class are stored. The executor writes through it; actions read through the adapter's class. */
export interface Repository<M extends AnyEntity = AnyEntity> {
  /** The class whose models it stores. */
  readonly model: ModelClass<M>;
  readonly strategy: ShardingStrategy<M>;
  /**
   * Makes the row that will be written, at the moment when the model is staged.
   *
   * @throws UnstorableValueException `unstorable-value` when a value would not come back as it is
   */
  encode(model: M): unknown;
  /**
   * Makes the model that a read will give once a row is written on a shard; `undefined` where only the database can tell, as
   * where it fills in a default, or a trigger may change the row. Without this method every read waits until the row is written.
   */
  decode?(row: unknown, shard: ShardIdentifier): M | undefined;
}

import { createHash } from 'node:crypto';
import { InvalidIdException } from '../errors/value-exceptions.js';
import { type ModelClass, modelNameOf } from '../model/model-class.js';
import { ShardIdentifier } from '../sharding/shard-identifier.js';
import { Id } from './id.js';
import { currentIdSource } from './id-source.js';
import { ShardedIdGenerator } from './sharded-id-generator.js';

const layout = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

let processGenerator = new ShardedIdGenerator();

/**
 * An id that carries the shard of its model, so that the id alone finds the database.
 *
 * A UUID version 7 whose bits 66–73 are the group and 74–79 the member; see {@link ShardedIdGenerator}.
 * Accepted wherever an `Id` of the same model is.
 */
export class ShardedId<T> extends Id<T> {
  /** Makes a new id on a shard; ids of one process sort in the order in which they were made. */
  static generate<T>(
    _model: ModelClass<T>,
    shard: ShardIdentifier,
    generator: ShardedIdGenerator = ownGenerator(),
  ): ShardedId<T> {
    return new ShardedId<T>(generator.next(shard));
  }

  /**
   * The id, on a shard, of the one model of a class that there may be for an origin: always the same for the same three.
   *
   * Two that make it at the same time make the same row, so the table's primary key lets one of them through. Takes its
   * time from the origin, and its other bits from the SHA-256 of `<model name>/<origin>`.
   *
   * ```ts
   * ShardedId.derive(TransferDecision, transferId, destination.id.resolveShardIdentifier())
   * ```
   *
   * @throws InvalidIdException `invalid-id` when the origin is not a UUID version 7
   */
  static derive<T>(model: ModelClass<T>, origin: Id<unknown>, shard: ShardIdentifier): ShardedId<T> {
    const { value } = ShardedId.of(model, origin.value);
    const digits = createHash('sha256')
      .update(`${modelNameOf(model)}/${value}`)
      .digest('hex');
    const placed = (0x8000 | (shard.group << 6) | shard.member).toString(16);
    return new ShardedId<T>(`${value.slice(0, 13)}-7${digits.slice(0, 3)}-${placed}-${digits.slice(3, 15)}`);
  }

  /**
   * Reads an id from its text, upper case or lower case.
   *
   * @throws InvalidIdException `invalid-id` when it is not a UUID version 7
   */
  static override of<T>(_model: ModelClass<T>, value: string): ShardedId<T> {
    const lowerCase = typeof value === 'string' ? value.toLowerCase() : '';
    if (!layout.test(lowerCase)) throw new InvalidIdException(value, 'a UUID version 7');
    return new ShardedId<T>(lowerCase);
  }

  /** The shard that the id carries, whether or not it is configured. */
  resolveShardIdentifier(): ShardIdentifier {
    const bits = Number.parseInt(this.value.slice(19, 23), 16);
    return ShardIdentifier.of((bits >> 6) & 0xff, bits & 0x3f);
  }
}

/** What makes the ids of this process, which begins anew with another source. */
function ownGenerator(): ShardedIdGenerator {
  if (processGenerator.source !== currentIdSource()) processGenerator = new ShardedIdGenerator();
  return processGenerator;
}

import { createHash } from 'node:crypto';
import { stringify } from 'uuid';
import * as z from 'zod';

import { InvalidIdError } from '../errors/value-errors.js';
import { type ModelClass, isStorableText, modelNameOf } from './model-class.js';
import { ShardIdentifier } from './shard-identifier.js';
import { type IdSource, currentIdSource } from './uuid-v7.js';

declare const modelType: unique symbol;

const lengthMax = 255;

/**
 * Identifies a model, and is typed by it: an `Id<Wallet>` is not accepted where an `Id<Order>` is expected, unless the
 * two classes have the same shape. A class that shares its shape with others makes its ids distinct with one line:
 * `declare protected readonly brand: 'Order';`.
 *
 * Use it for ids from other systems, and {@link ShardedId} for ids that you generate.
 */
export class Id<T> {
  /** Exists only in the type: the class that the id identifies. */
  declare readonly [modelType]: T;
  /** The id as text, 1 to 255 characters. */
  readonly value: string;

  protected constructor(value: string) {
    this.value = value;
  }

  /**
   * Parses an id.
   *
   * @throws InvalidIdError `invalid-id` when the text is empty, longer than 255 characters, or cannot be stored by the
   * database
   */
  static of<T>(_model: ModelClass<T>, value: string): Id<T> {
    if (!isStorableText(value) || value.length === 0 || value.length > lengthMax) {
      throw new InvalidIdError(value, `an id of 1 to ${lengthMax} characters that a database can store`);
    }
    return new Id<T>(value);
  }

  /** Whether both identify the same model. */
  equals(other: Id<T>): boolean {
    return this.value === other.value;
  }

  /** The id as text, so that a template can contain it. */
  toString(): string {
    return this.value;
  }

  /** The id as text, also in JSON. */
  toJSON(): string {
    return this.value;
  }
}

/**
 * A codec between a model's id and its text, for params of actions and payloads of events. The decoded side is an `Id`; create
 * one from text with `Id.of`.
 */
export function idCodec<T>(model: ModelClass<T>): z.ZodType<Id<T>, string> {
  const id = z.custom<Id<T>>(
    (value) => value instanceof Id,
    'Invalid input: expected an Id; create one from text with Id.of',
  );
  const text = z
    .string()
    .min(1)
    .max(lengthMax)
    .refine(isStorableText, 'Invalid input: the text contains characters that no database can store');
  return z.codec(text, id, { decode: (value) => Id.of(model, value), encode: ({ value }) => value });
}

const counterMax = 0xfff;

/**
 * Generates ids that carry their shard, in ascending order.
 *
 * An id is a UUID version 7 (RFC 9562): 48 bits of milliseconds, version, a 12-bit counter within the millisecond
 * (`rand_a`, as in section 6.2, method 1), variant, 8 bits of group, 6 bits of member, 48 random bits. When the counter
 * overflows or the clock goes back, the timestamp runs ahead of the clock, so that the order is kept.
 */
export class ShardedIdGenerator {
  /** The source of time and randomness. */
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
   * Generates the next id of a shard, as lower-case text.
   *
   * @throws InvalidShardError `invalid-shard` when the shard is out of range, so that its bits would overlap others
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

const layout = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

let processGenerator = new ShardedIdGenerator();

/**
 * An id that carries the shard of its model, so that the id alone is enough to find the database.
 *
 * It is a UUID version 7 (RFC 9562) with the group in bits 66–73 and the member in bits 74–79, and is accepted wherever an `Id` of
 * the same model is.
 */
export class ShardedId<T> extends Id<T> {
  /** Generates a new id on a shard. Ids of one process sort in the order in which they were generated. */
  static generate<T>(_model: ModelClass<T>, shard: ShardIdentifier): ShardedId<T> {
    return new ShardedId<T>(ownGenerator().next(shard));
  }

  /**
   * Derives the id of a model from an origin, such as the id of another model. The same arguments always give the same
   * id, so at most one model of the class can exist for an origin on a shard.
   *
   * Two executions that create the model at the same time try to insert the same row, and the table's primary key lets
   * only one of them succeed. The id takes its time from the origin, and its other bits from the SHA-256 of `<model
   * name>/<origin>`.
   *
   * ```ts
   * ShardedId.derive(TransferDecision, transferId, destination.id.resolveShardIdentifier())
   * ```
   *
   * @throws InvalidIdError `invalid-id` when the origin is not a UUID version 7
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
   * Parses an id in upper or lower case.
   *
   * @throws InvalidIdError `invalid-id` when the text is not a UUID version 7
   */
  static override of<T>(_model: ModelClass<T>, value: string): ShardedId<T> {
    const lowerCase = typeof value === 'string' ? value.toLowerCase() : '';
    if (!layout.test(lowerCase)) throw new InvalidIdError(value, 'a UUID version 7');
    return new ShardedId<T>(lowerCase);
  }

  /** The shard that the id carries, whether it is configured or not. */
  resolveShardIdentifier(): ShardIdentifier {
    const bits = Number.parseInt(this.value.slice(19, 23), 16);
    return ShardIdentifier.of((bits >> 6) & 0xff, bits & 0x3f);
  }
}

/** The generator of this process; replaced when the id source changes. */
function ownGenerator(): ShardedIdGenerator {
  if (processGenerator.source !== currentIdSource()) processGenerator = new ShardedIdGenerator();
  return processGenerator;
}

/**
 * A codec between a model's sharded id and its text, for params of actions and payloads of events.
 *
 * The decoded side is a `ShardedId`; create one from text with `ShardedId.of`.
 */
export function shardedIdCodec<T>(model: ModelClass<T>): z.ZodType<ShardedId<T>, string> {
  const id = z.custom<ShardedId<T>>(
    (value) => value instanceof ShardedId,
    'Invalid input: expected a ShardedId; create one from text with ShardedId.of',
  );
  return z.codec(z.uuidv7(), id, {
    decode: (value) => ShardedId.of(model, value),
    encode: (value) => value.value,
  });
}

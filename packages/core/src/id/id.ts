import { InvalidIdError } from '../errors/value-errors.js';
import { type ModelClass, isStorableText } from '../model/model-class.js';

declare const modelType: unique symbol;

const lengthMax = 255;

/**
 * The identity of a model, typed by it: an `Id<Wallet>` is not accepted where an `Id<Order>` is wanted, unless a wallet has
 * the shape of an order. A model whose shape others have tells itself apart by one line:
 * `declare protected readonly brand: 'Order';`.
 *
 * Use it for ids that another system gave; {@link ShardedId} for those made here.
 */
export class Id<T> {
  /** Exists in the type only: what the id identifies. */
  declare readonly [modelType]: T;
  /** The id as text, 1 to 255 characters. */
  readonly value: string;

  protected constructor(value: string) {
    this.value = value;
  }

  /**
   * Reads an id from its text.
   *
   * @throws InvalidIdError `invalid-id` when it is empty, longer than 255 characters, or no text that a database holds
   */
  static of<T>(_model: ModelClass<T>, value: string): Id<T> {
    if (!isStorableText(value) || value.length === 0 || value.length > lengthMax) {
      throw new InvalidIdError(value, `an id of 1 to ${lengthMax} characters`);
    }
    return new Id<T>(value);
  }

  /** Tells whether both identify the same model. */
  equals(other: Id<T>): boolean {
    return this.value === other.value;
  }

  toString(): string {
    return this.value;
  }

  toJSON(): string {
    return this.value;
  }
}

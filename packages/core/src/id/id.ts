import * as z from 'zod';

import { InvalidIdError } from '../errors/value-errors.js';
import { type ModelClass, isStorableText } from '../model/model-class.js';

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
      throw new InvalidIdError(value, `an id of 1 to ${lengthMax} characters`);
    }
    return new Id<T>(value);
  }

  /** Whether both identify the same model. */
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

/**
 * The schema of a model's id, written as text: for params of actions and payloads of events.
 *
 * Takes and gives an `Id`; make one of text by `Id.of`.
 */
export function idCodec<T>(model: ModelClass<T>): z.ZodType<Id<T>, string> {
  const id = z.custom<Id<T>>(
    (value) => value instanceof Id,
    'Invalid input: expected an Id, as Id.of makes it of text',
  );
  const text = z
    .string()
    .min(1)
    .max(lengthMax)
    .refine(isStorableText, 'Invalid input: no database holds the text');
  return z.codec(text, id, { decode: (value) => Id.of(model, value), encode: ({ value }) => value });
}
